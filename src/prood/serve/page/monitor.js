// One line about the monitor: whether what arrives at the service still looks like its calibration.

import { get } from "./api.js";
import { byId } from "./elements.js";

const EVERY = 60_000; // milliseconds
let timer;

/** What the monitor says, in one sentence; an alarm says at which image it was raised. */
export function watched({ seen, accepted, accept, shift_at, promise_at, false_alarms }) {
  const images = `${seen.toLocaleString("en")} ${seen === 1 ? "image" : "images"}`;
  const sure = `false alarms, ever: at most ${percent(false_alarms)}`;
  if (shift_at !== null) return `Alarm: arrivals no longer look like the calibration, seen at image ${shift_at} (${sure}).`;
  if (promise_at !== null) return `Alarm: more is rejected than promised, seen at image ${promise_at} (${sure}).`;
  if (seen === 0) return `The monitor has seen no images yet (${sure}).`;
  const rate = `${percent(accepted / seen)} accepted, ${percent(accept)} promised`;
  return `Arrivals look like the calibration: ${images}, ${rate} (${sure}).`;
}

export async function showMonitor() {
  try {
    const { monitor } = await get("v1/monitor");
    byId("monitor").hidden = monitor === null;
    if (monitor === null) return;
    byId("monitor").textContent = watched(monitor);
    byId("monitor").classList.toggle("problem", monitor.alarm);
  } catch {
    return; // without a token, say: the page asks for it where an answer needs it
  }
  clearTimeout(timer);
  timer = setTimeout(showMonitor, EVERY);
}

function percent(share) {
  return `${Number((100 * share).toFixed(1))}%`;
}
