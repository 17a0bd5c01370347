// SPDX-License-Identifier: GPL-2.0-or-later
// One time axis: the streams' quality, the three pressures, what gates leave to others, rates
// and limits. Auto-shaping's decisions are triangles on it.

import { call } from "./api.js";
import { element, figures, setText } from "./dom.js";
import { clock, significant } from "./format.js";
import { legend, plot, readings, replot } from "./plot.js";
import { drawStrip } from "./strip.js";

const WINDOW_SECONDS = 900;
const STEP_SECONDS = 2;
const TABLE_SECONDS = 30;
const NEAR_PX = 12;
const MOST_DOMAINS = 4;
const MOST_PRESSURE = 3;
// Beside each other in one chart, told apart by shape as well; classes have colours of their own.
const LOOKS = [{ colour: "--ink" }, { colour: "--accent", dashed: true }, { colour: "--muted", dotted: true }];
const PRESSURES = ["disk", "network", "processors"];
// A stream beyond it stalls sooner or later.
const EDGE = "edge";
const IDS = ["pressure", "target", "auto"];
const made = new Map();
let marked = null;
let shown = null;

const chosen = () => document.querySelector("input[name=chart-resource]:checked").value;
const rows = () => [...document.querySelectorAll("#auto-log [data-decision]")];
const atOf = (row) => Number(row.dataset.decision);

// VMs with something held first, then those with a stream.
function domainsOf(streams, auto) {
  const held = [...(auto.limits ?? []), ...(auto.devices ?? []).flatMap((device) => device.held)];
  return [...new Set([...held, ...streams].map((one) => one.domain))];
}

// The values of a history at each step of the axis; null where nothing was seen.
function spread(history, key, count, convert) {
  const column = new Array(count).fill(null);
  history.series[key]?.forEach((value, index) => {
    const place = Math.round((history.at[index] - history.since) / STEP_SECONDS);
    if (value !== null && place >= 0 && place < count) column[place] = convert(value);
  });
  return column;
}

// A stream may outlive its VM; all other figures are there.
function ofNobody(problem) {
  if (problem.status !== 404) throw problem;
  return { at: [], series: {} };
}

async function collect() {
  const since = Math.floor(Date.now() / 1000) - WINDOW_SECONDS;
  const ask = async (where, query = {}) =>
    ({ since, ...await call("GET", `/${where}?${new URLSearchParams({ ...query, since, step: STEP_SECONDS })}`) });
  const [streams, auto, classes, past] = await Promise.all([call("GET", "/streams"), call("GET", "/auto"), call("GET", "/classes"), ask("auto/past")]);
  const domains = domainsOf(streams, auto);
  const histories = await Promise.all(domains.slice(0, MOST_DOMAINS).map((domain) => ask("history", { domain }).catch(ofNobody)));
  const times = Array.from({ length: WINDOW_SECONDS / STEP_SECONDS + 1 }, (_, index) => since + index * STEP_SECONDS);
  const colours = new Map(classes.map((one) => [one.name, one.colour_index % 8]));
  const devices = Object.keys(past.series).filter((key) => /\/target_ms$/.test(key) && past.series[key].some((value) => value !== null));
  const edge = { label: EDGE, colour: "--bad", dashed: true, values: times.map(() => 1) };
  return {
    times, more: Math.max(domains.length - MOST_DOMAINS, 0), moreDevices: Math.max(devices.length - LOOKS.length, 0),
    pressure: [...PRESSURES.map((name, index) => ({
      label: name, ...LOOKS[index], values: spread(past, `${name}/pressure`, times.length, (value) => Math.min(value, MOST_PRESSURE)),
    })), edge],
    target: devices.slice(0, LOOKS.length).map((key, index) => ({
      label: key.slice(0, key.lastIndexOf("/")), ...LOOKS[index], stepped: true, values: spread(past, key, times.length, (value) => value),
    })),
    auto: histories.flatMap((history, number) => ratesOf(history, domains[number], colours, times.length)),
  };
}

function ratesOf(history, domain, colours, count) {
  const lines = [];
  for (const key of Object.keys(history.series)) {
    const [name, resource, field] = key.split("/");
    if (resource !== chosen() || !["bytes_per_second", "limit_bytes_per_second"].includes(field)) continue;
    const of = `${name} on ${domain}`;
    const isLimit = field.startsWith("limit");
    const values = spread(history, key, count, (value) => value / 1e6);
    if (values.some((value) => value !== null)) {
      lines.push({ of, label: isLimit ? `${of}, limit` : of, values, colour: `--c${colours.get(name) ?? 0}`, dashed: isLimit });
    }
  }
  return lines;
}

export async function drawAuto() {
  if (document.hidden) return;
  try {
    shown = await collect();
  } catch {
    return; // The banner gives the reason; the charts stand still.
  }
  const now = () => Date.now() / 1000;
  for (const id of IDS) {
    const data = { times: shown.times, lines: shown[id] };
    if (made.has(id)) replot(made.get(id), data.times, data.lines);
    else {
      made.set(id, plot({
        ...data, holder: document.getElementById(`chart-${id}`), span: () => [now() - WINDOW_SECONDS, now()], isClock: true,
        timeText: (time) => clock(time, false), sync: "auto", onPick: openNearest, onRead: showReading,
      }));
    }
  }
  showMarks();
  showLegends();
  showTable();
  // A new chart has its edges only after that.
  await Promise.resolve();
  // Beneath each other: the strips have the edges of the charts.
  const { plot: { bbox }, chart: { holder } } = made.get("pressure");
  const left = bbox.left / devicePixelRatio;
  const right = holder.clientWidth - left - bbox.width / devicePixelRatio;
  for (const canvas of document.querySelectorAll("canvas[data-past]")) drawStrip(canvas, WINDOW_SECONDS, left, right);
}

function showLegends() {
  legend("legend-pressure", shown.pressure);
  const isKnown = shown.pressure.some((line) => line.label !== EDGE && line.values.some((value) => value !== null));
  if (!isKnown) document.getElementById("legend-pressure").append("not known: auto-shaping was off, or there was no stream");
  legend("legend-target", shown.target);
  if (!shown.target.length) document.getElementById("legend-target").append("no gate was set");
  if (shown.moreDevices) document.getElementById("legend-target").append(`and ${shown.moreDevices} devices more`);
  const labels = new Map(shown.auto.map((line) => [line.of, line.colour.slice(2)]));
  document.getElementById("legend-auto").replaceChildren(...[...labels].map(([label, colour]) =>
    element("span", { class: colour }, element("span", { class: "swatch" }), label)));
  if (shown.more) document.getElementById("legend-auto").append(`and ${shown.more} VMs more`);
}

// The charts' figures at the pointer; the last words stay when it leaves.
function showReading(index) {
  if (index === null || !(index in shown.times)) return;
  const parts = [["pressure", shown.pressure.filter((line) => line.label !== EDGE)], ["ms in flight", shown.target], ["MB/s", shown.auto]];
  const said = parts.map(([unit, lines]) => [unit, readings(lines, index)]).filter(([, text]) => text).map(([unit, text]) => `${unit}: ${text}`);
  setText(document.getElementById("past-readout"), `${clock(shown.times[index])} · ${said.join(" · ")}`);
}

// Newest first, while it is open.
function showTable() {
  if (!shown || !document.getElementById("past-figures").open) return;
  const lines = [...shown.pressure.filter((line) => line.label !== EDGE).map((line) => [line, "pressure"]),
    ...shown.target.map((line) => [line, "ms"]), ...shown.auto.map((line) => [line, "MB/s"])];
  const found = [];
  for (let index = shown.times.length - 1; index >= 0; index -= TABLE_SECONDS / STEP_SECONDS) {
    found.push([clock(shown.times[index]), ...lines.map(([line]) => (line.values[index] === null ? "–" : significant(line.values[index])))]);
  }
  figures(document.getElementById("past-table"), ["Time", ...lines.map(([line, unit]) => `${line.label}, ${unit}`)], found);
}

function showMarks() {
  const marks = rows().map(atOf).map((at) => (at === marked ? { at, colour: "--accent", line: true } : { at }));
  for (const { chart, plot: drawn } of made.values()) {
    chart.marks = marks;
    drawn.redraw();
  }
}

function openNearest(time) {
  const near = rows()
    .map((row) => ({ row, distance: Math.abs(atOf(row) - time) }))
    .sort((a, b) => a.distance - b.distance)[0];
  if (near && near.distance < (NEAR_PX * WINDOW_SECONDS) / document.getElementById("chart-auto").clientWidth) {
    mark(atOf(near.row));
    // Its entry, and the earlier ones if it is among them.
    for (let part = near.row.parentElement; part; part = part.parentElement) if (part.localName === "details") part.open = true;
    near.row.scrollIntoView({ block: "nearest" });
  }
}

// Marks one decision on the axis and its sentence in the log.
export function mark(at) {
  marked = at;
  for (const row of rows()) row.classList.toggle("marked", atOf(row) === at);
  showMarks();
}

document.getElementById("chart-resource").addEventListener("change", drawAuto);
document.getElementById("past-figures").addEventListener("toggle", showTable);
