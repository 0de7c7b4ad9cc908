// The service: requests, its errors in its own words, the token, and patience while it is busy.

const TOKEN = "prood-token";
const PATIENCE = 2; // times that a busy service is asked again
const PASSING = [408, 429, 502, 503, 504];
const LONGEST_WAIT = 10; // seconds

/** An error that is meant to be read. `passing` ones may be gone when the same is tried again. */
export class Problem extends Error {
  constructor(message, { status, passing = false } = {}) {
    super(message);
    this.status = status;
    this.passing = passing;
  }
}

let token = remembered();

export function keepToken(given) {
  token = given;
  try {
    sessionStorage.setItem(TOKEN, given);
  } catch {
    // A browser that keeps nothing asks again next time.
  }
}

export function hasToken() {
  return Boolean(token);
}

function remembered() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

/** GET an address of the service, as JSON. */
export function get(path, signal) {
  return request(path, { signal }, (reply) => reply.json());
}

/** GET a picture of the service. */
export function picture(path, signal) {
  return request(path, { signal }, (reply) => reply.blob());
}

/** POST one image with its options; `read` makes the answer of the reply. */
export function post(path, image, options, signal, read = (reply) => reply.json()) {
  const body = new FormData();
  body.append("image", image, image.name ?? "image");
  const query = new URLSearchParams(options);
  return request(`${path}?${query}`, { method: "POST", body, signal }, read);
}

/** The same, where the answer is lines of JSON: each is told as it comes, and the last one returned. */
export function follow(path, image, options, signal, each) {
  return post(path, image, { ...options, stream: true }, signal, async (reply) => {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let [rest, last] = ["", {}];
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const line of lines) each((last = JSON.parse(line)));
    }
    if (last.error) throw new Problem(sentence(last.error), { passing: true });
    if (!last.ended) throw new TypeError("the last line is missing");
    return last;
  });
}

async function request(path, options, read) {
  for (let tries = 0; ; tries += 1) {
    const reply = await answered(path, options);
    if (reply.ok) return readable(reply, read);
    const wait = Number(reply.headers.get("Retry-After"));
    const busy = reply.status === 429 || reply.status === 503;
    if (!busy || tries >= PATIENCE || !(wait <= LONGEST_WAIT)) throw await refusal(reply);
    await pause(Math.max(wait, 0.5), options.signal);
  }
}

async function answered(path, options) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  // Addresses are relative, so that the service may live below any path; those it names itself begin with a slash.
  const address = new URL(path.replace(/^\//, ""), document.baseURI);
  try {
    return await fetch(address, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service does not answer. Is “prood serve” still running?", { passing: true });
  }
}

async function readable(reply, read) {
  try {
    return await read(reply);
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Problem) throw error;
    throw new Problem("The answer broke off.", { passing: true });
  }
}

async function refusal(reply) {
  let words = "";
  try {
    words = (await reply.json()).error;
  } catch {
    // Something between us and the service answered, not in its format.
  }
  const said = sentence(words || `the service answered ${reply.status} ${reply.statusText}`);
  return new Problem(said, { status: reply.status, passing: PASSING.includes(reply.status) });
}

function sentence(words) {
  const text = words[0].toUpperCase() + words.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
