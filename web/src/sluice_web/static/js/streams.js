// SPDX-License-Identifier: GPL-2.0-or-later
// Quality, auto-shaping's switches, its limits, and its log.

import { call, path } from "./api.js";
import { announce, changed, failed } from "./changes.js";
import { drawAuto, mark } from "./autochart.js";
import { element, RESOURCES, setText, showVerdict } from "./dom.js";
import { age, processorWait, rate } from "./format.js";
import { attempt, showError } from "./forms.js";
import { fill, read } from "./knobs.js";
import { on } from "./live.js";
import { refresh } from "./refresh.js";
import { drawStrip } from "./strip.js";

const panel = document.getElementById("auto");
const enabled = document.getElementById("auto-enabled");
const dry = document.getElementById("auto-dry");
const methodForm = document.getElementById("auto-method");
const floorForm = document.getElementById("floors");
let auto = JSON.parse(panel.dataset.state);
let shownFloors = {};
// While a switch is being sent, it stands as it was put.
let sending = false;

function showAuto(state) {
  if (state.problem) return;
  const decided = state.decided_at !== auto.decided_at;
  auto = state;
  if (!sending) {
    enabled.checked = state.enabled;
    dry.checked = state.dry_run;
    fill(methodForm, state);
  }
  setText(document.getElementById("auto-word"), state.enabled ? `${state.state}${state.dry_run ? ", dry run" : ""}` : "off");
  const gated = (state.devices ?? []).flatMap((device) => device.held.map((one) => ({ ...one, by: `gate of ${device.name}` })));
  const held = [...(state.limits ?? []).map((one) => ({ ...one, by: "rate" })), ...gated];
  document.getElementById("auto-limits").tBodies[0].replaceChildren(...held.map((one) => element("tr", {},
    element("td", {}, one.class, element("span", { class: "muted" }, ` on ${one.domain}`)),
    element("td", {}, RESOURCES[one.resource] ?? one.resource),
    element("td", { class: "num" }, rate(one.bytes_per_second)),
    element("td", {}, one.by))));
  document.getElementById("auto-none").hidden = held.length > 0;
  document.getElementById("auto-limits").hidden = !held.length;
  showSaid(state.sentences ?? []);
  showFloors(state.floors_bytes_per_second);
  const settled = state.settled_after_seconds;
  setText(document.getElementById("auto-settled"), settled === null || settled === undefined ? "" : `Rates settled after ${age(settled)}.`);
  if (decided) refreshLog();
}

// Figures change each second: a sentence keeps its place, and what is selected of the others stays.
function showSaid(sentences) {
  const list = document.getElementById("auto-said");
  while (list.children.length > sentences.length) list.lastElementChild.remove();
  sentences.forEach((sentence, index) => setText(list.children[index] ?? list.appendChild(element("li")), sentence));
}

// An entry that was opened stays open when newer decisions come. An entry grows at its
// newer end, so the oldest decision in it tells which it is.
async function refreshLog() {
  const entries = (selector) => [...document.querySelectorAll(`#auto-log ${selector}`)];
  const opened = entries("details[open]").map((entry) => entry.dataset.key);
  await refresh("#auto-log");
  for (const entry of entries("details")) entry.open = opened.includes(entry.dataset.key);
}

async function setAuto(body, sentence) {
  // The changed switch alone: undoing it leaves the other switch as it is by then.
  const before = Object.fromEntries(Object.keys(body).map((key) => [key, auto[key]]));
  const line = document.getElementById("auto-error");
  showError(line, null);
  sending = true;
  try {
    const state = await call("PUT", "/auto", body);
    sending = false;
    showAuto(state);
    changed(sentence, async () => showAuto(await call("PUT", "/auto", before)));
    announce();
  } catch (problem) {
    showError(line, problem);
    sending = false;
    enabled.checked = auto.enabled;
    dry.checked = auto.dry_run;
    fill(methodForm, auto);
  }
}

// A field in which nothing was typed shows the floor that others set.
function showFloors(floors) {
  fill(floorForm, floors ?? {}, shownFloors);
  shownFloors = floors ?? {};
}

async function setFloors() {
  const before = auto.floors_bytes_per_second ?? {};
  const state = await call("PUT", "/auto", { floors_bytes_per_second: read(floorForm, shownFloors, before) });
  fill(floorForm, (shownFloors = state.floors_bytes_per_second));
  showAuto(state);
  changed("Floors are set.", async () => showAuto(await call("PUT", "/auto", { floors_bytes_per_second: before })));
}

async function setUplink(select) {
  const line = document.getElementById("uplink-error");
  const before = select.dataset.before;
  const put = (name) => call("PUT", "/settings", { uplink: name || null });
  showError(line, null);
  try {
    await put(select.value);
    select.dataset.before = select.value;
    changed(select.value ? `${select.value} is watched.` : "No uplink is watched.", async () => {
      await put(before);
      select.value = select.dataset.before = before;
    });
  } catch (problem) {
    showError(line, problem);
    select.value = before;
  }
}

async function declare(fields) {
  const slash = fields.where.lastIndexOf("/");
  await call("PUT", path("streams", fields.name), {
    domain: fields.where.slice(0, slash), class: fields.where.slice(slash + 1), ...read(document.getElementById("stream-form"), {}),
  });
  location.reload();
}

async function forget(row) {
  const { stream, domain, nominal } = row.dataset;
  try {
    await call("DELETE", path("streams", stream));
    row.hidden = true;
    changed(`${stream} is no longer watched.`, async () => {
      await call("PUT", path("streams", stream), { domain, class: row.dataset.class, nominal_bytes_per_second: nominal ? Number(nominal) : null });
      row.hidden = false;
    });
  } catch (problem) {
    failed(problem);
  }
}

function showStreams(streams) {
  if (streams.problem) return;
  for (const stream of streams) {
    const row = document.querySelector(`[data-stream="${CSS.escape(stream.name)}"]`);
    if (!row) continue;
    showVerdict(row, stream);
    setText(row.querySelector("[data-field=processors]"), processorWait(stream));
    setText(row.querySelector("[data-field=nominal]"), stream.nominal.sentence);
  }
}

enabled.addEventListener("change", () => setAuto({ enabled: enabled.checked }, enabled.checked
  ? "Auto-shaping is on." : "Auto-shaping is off; every class has its own limits."));
dry.addEventListener("change", () => setAuto({ dry_run: dry.checked }, dry.checked
  ? "Dry run: it decides and changes nothing." : "Dry run is over: decisions take effect."));
methodForm.addEventListener("change", () => setAuto(read(methodForm, auto), `Disks are held by the method ${methodForm.elements.method.value}.`));
document.getElementById("uplink").addEventListener("change", (event) => setUplink(event.target));
floorForm.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(event.target, setFloors);
});
document.getElementById("stream-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(event.target, declare);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-action=forget]");
  if (button) forget(button.closest("li"));
  const decision = event.target.closest?.("[data-decision]");
  if (decision) mark(Number(decision.dataset.decision));
});
const strips = () => document.querySelectorAll("canvas[data-strip]").forEach((canvas) => drawStrip(canvas));
on("auto", showAuto);
on("streams", showStreams);
showFloors(auto.floors_bytes_per_second);
fill(methodForm, auto);
strips();
drawAuto();
setInterval(strips, 10_000);
setInterval(drawAuto, 5_000);
