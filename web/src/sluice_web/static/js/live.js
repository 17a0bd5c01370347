// SPDX-License-Identifier: GPL-2.0-or-later
// The page's event stream: one connection, handlers per topic, a banner when
// it breaks, and the age of the newest sample. It mends itself.

import { base, call } from "./api.js";
import { age } from "./format.js";
import { setText } from "./dom.js";

const handlers = new Map();
const latest = new Map();
let source = null;
let lastSampleMs = null;
let lost = false;
let refused = false;
let controllerProblem = null;

export function on(topic, handler) {
  if (!handlers.has(topic)) handlers.set(topic, []);
  handlers.get(topic).push(handler);
  if (latest.has(topic)) handler(latest.get(topic));
}

export const last = (topic) => latest.get(topic);

export function connect() {
  const topics = document.body.dataset.topics.trim();
  if (!topics) return;
  const query = new URLSearchParams();
  for (const topic of topics.split(/\s+/)) query.append("topic", topic);
  if (document.body.dataset.domain) query.append("domain", document.body.dataset.domain);
  source?.close();
  source = new EventSource(`${base}/events?${query}`);
  source.addEventListener("open", () => setLost(false));
  source.addEventListener("error", () => {
    setLost(true);
    if (source.readyState === EventSource.CLOSED) setTimeout(reconnect, 2000);
  });
  for (const topic of [...topics.split(/\s+/), "controller"]) {
    source.addEventListener(topic, (event) => take(topic, JSON.parse(event.data)));
  }
}

// The server refused the stream: find out why before trying again. A session
// that ended leads to the sign-in page (in call).
async function reconnect() {
  if (document.hidden) return;
  try {
    await call("GET", "/status");
    refused = true;
  } catch (problem) {
    if (problem.status === 401) return;
    refused = false;
  }
  showBanner();
  connect();
}

// How old the newest figures were when they were sent: sluiced answers too when its
// sampling stands still.
export function lagSeconds(live) {
  const sampled = Object.values(live.domains ?? {}).map((one) => one.at);
  return sampled.length ? Math.max(live.at - Math.max(...sampled), 0) : 0;
}

function take(topic, data) {
  setLost(false);
  if (topic === "controller") {
    controllerProblem = data.ok ? null : data.problem;
    showBanner();
    return;
  }
  if (topic === "live" && !data.problem) lastSampleMs = performance.now() - lagSeconds(data) * 1000;
  latest.set(topic, data);
  for (const handler of handlers.get(topic) ?? []) handler(data);
}

function setLost(now) {
  if (lost === now) return;
  lost = now;
  refused = false;
  showBanner();
}

function showBanner() {
  const banner = document.getElementById("banner");
  let text = "";
  if (lost && refused) text = "This page gets no live figures: most likely too many pages are open; close some. The figures below stand still. Trying again…";
  else if (lost) text = "The connection to this page's server is lost: the figures below stand still. Limits stay in force on the host. Trying again…";
  else if (controllerProblem) text = controllerProblem.detail;
  setText(banner, text);
  banner.hidden = !text;
}

function showAge() {
  const shown = document.getElementById("data-age");
  if (!shown || lastSampleMs === null) return;
  const seconds = (performance.now() - lastSampleMs) / 1000;
  shown.hidden = false;
  setText(shown.querySelector(".figure"), age(seconds));
  shown.classList.toggle("old", seconds > 3);
}

// A hidden page needs no stream; browsers allow few per server.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else connect();
});
setInterval(showAge, 250);
