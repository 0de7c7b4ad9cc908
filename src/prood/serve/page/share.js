// What one takes along: a link to this image and ε, the request for a shell, and the certificate as a file.

import { hasToken, post, Problem } from "./api.js";
import { byId, complain, element } from "./elements.js";
import { short } from "./format.js";

const LONGEST = 8192; // bytes of a picture in a link
const STRANGE = /[^\p{L}\p{N} ._()-]/gu; // in the name of a file that a link gives

/** What a link says: `example` names one, `picture` is a file's own bytes; null: it says nothing. */
export function read(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const [example, picture, name] = ["example", "picture", "name"].map((key) => said.get(key));
  const eps = said.get("eps") === null ? NaN : Number(said.get("eps"));
  if (example !== null) return { example, eps };
  if (picture === null) return null;
  try {
    const bytes = Uint8Array.from(atob(picture.replace(/-/g, "+").replace(/_/g, "/")), (mark) => mark.charCodeAt(0));
    return { picture: new File([bytes], (name || "linked.png").replace(STRANGE, "_")), eps };
  } catch {
    throw new Problem("The link is damaged: its picture cannot be read.");
  }
}

export class Share {
  /** `chosen()` gives the image, its file's name, the example, if it is one, and ε. */
  constructor(model, chosen) {
    Object.assign(this, { model, chosen });
    byId("copy-link").addEventListener("click", () => this.attempt(() => this.link()));
    byId("copy-curl").addEventListener("click", () => this.attempt(() => this.curl()));
    byId("download").addEventListener("click", () => this.attempt(() => this.download()));
    byId("download").hidden = !model.certificates;
  }

  forget() {
    byId("share-text").hidden = true;
    byId("share-status").textContent = "";
    complain("share-problem", null);
  }

  async attempt(work) {
    this.forget();
    try {
      await work();
    } catch (error) {
      complain("share-problem", error, () => this.attempt(work));
    }
  }

  async link() {
    const { image, name, example, eps } = this.chosen();
    const said = new URLSearchParams();
    if (example) said.set("example", example.name);
    else {
      if (image.size > LONGEST) throw new Problem("This picture is too large for a link: send the file.");
      const bytes = Array.from(new Uint8Array(await image.arrayBuffer()), (byte) => String.fromCharCode(byte));
      said.set("picture", btoa(bytes.join("")).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, ""));
      said.set("name", name);
    }
    said.set("eps", short(eps));
    // Behind the #, so that the picture is sent to no server, and stands in no log.
    history.replaceState(null, "", `#${said}`);
    await this.copy(location.href, "The link is copied; it also stands in the address bar.");
  }

  curl() {
    const { name, example, eps } = this.chosen();
    const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;
    const address = (path) => quoted(new URL(path, document.baseURI).href);
    const token = hasToken() ? ' -H "Authorization: Bearer $PROOD_TOKEN"' : "";
    const file = example ? "-" : `"${name.replace(/["\\]/g, "\\$&")}"`;
    const ask = `curl${token} -F ${quoted(`image=@${file}`)} ${address(`v1/certify?eps=${short(eps)}`)}`;
    const first = example ? `curl -s${token} ${address(example.url.replace(/^\//, ""))} | ` : "";
    return this.copy(first + ask, "The command is copied.");
  }

  async download() {
    const { image, name, eps } = this.chosen();
    const line = await post("v1/certificate", image, { eps, name }, undefined, (reply) => reply.text());
    const file = `${name.replace(/\.\w+$/, "")}-${short(eps)}.jsonl`;
    save(new Blob([line], { type: "application/json" }), file);
    const picture = element("button", { type: "button", class: "quiet" }, `Save ${name}`);
    picture.addEventListener("click", () => save(image, name));
    const check = element("code", {}, `prood verify ${file} --model ${this.model.name}`);
    byId("share-status").replaceChildren("Saved. Beside the picture, ", check, " checks it. ", picture);
  }

  /** Not every address may write to the clipboard; then it is shown, to be copied by hand. */
  async copy(text, said) {
    byId("share-text").value = text;
    byId("share-text").hidden = false;
    try {
      await navigator.clipboard.writeText(text);
      byId("share-status").textContent = said;
    } catch {
      byId("share-text").select();
      byId("share-status").textContent = "Copy it from here:";
    }
  }
}

function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
