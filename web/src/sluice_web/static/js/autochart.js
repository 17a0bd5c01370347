// SPDX-License-Identifier: GPL-2.0-or-later
// Limits over time with auto-shaping's decisions as triangles on the axis.

import { call } from "./api.js";
import { element } from "./dom.js";
import { clock } from "./format.js";
import { plot, replot } from "./plot.js";

const WINDOW_SECONDS = 900;
const NEAR_PX = 12;
const holder = document.getElementById("chart-auto");
let made = null;
let marked = null;

const chosen = () => document.querySelector("input[name=chart-resource]:checked").value;
const rows = () => [...document.querySelectorAll("#auto-log [data-decision]")];
const atOf = (row) => Number(row.dataset.decision);

// Every VM with a stream, or with something held, has its lines here.
async function domainsShown() {
  const [streams, auto] = await Promise.all([call("GET", "/streams"), call("GET", "/auto")]);
  const names = new Set([...streams.map((one) => one.domain), ...(auto.limits ?? []).map((one) => one.domain)]);
  return [...names].sort().slice(0, 4);
}

async function collect() {
  const since = Math.floor(Date.now() / 1000) - WINDOW_SECONDS;
  const [domains, classes] = await Promise.all([domainsShown(), call("GET", "/classes")]);
  const colours = new Map(classes.map((one) => [one.name, one.colour_index % 8]));
  const histories = await Promise.all(domains.map((domain) =>
    call("GET", `/history?${new URLSearchParams({ domain, since, step: 2 })}`)));
  const times = [...new Set(histories.flatMap((history) => history.at))].sort((a, b) => a - b);
  const indexOf = new Map(times.map((time, index) => [time, index]));
  const lines = [];
  histories.forEach((history, number) => {
    for (const [key, values] of Object.entries(history.series)) {
      const [name, resource, field] = key.split("/");
      if (resource !== chosen() || !["bytes_per_second", "limit_bytes_per_second"].includes(field)) continue;
      const column = new Array(times.length).fill(null);
      values.forEach((value, index) => { column[indexOf.get(history.at[index])] = value === null ? null : value / 1e6; });
      const label = `${name} on ${domains[number]}`;
      const isLimit = field.startsWith("limit");
      if (column.some((value) => value !== null)) {
        lines.push({ of: label, label: `${label} ${field}`, values: column, colour: `--c${colours.get(name) ?? 0}`, dashed: isLimit });
      }
    }
  });
  return { times, lines };
}

export async function drawAuto() {
  if (document.hidden) return;
  let data;
  try {
    data = await collect();
  } catch {
    return; // The banner gives the reason; the chart stands still.
  }
  if (made) replot(made, data.times, data.lines);
  else {
    const now = () => Date.now() / 1000;
    made = plot({
      ...data, holder, span: () => [now() - WINDOW_SECONDS, now()], isClock: true, timeText: (time) => clock(time, false),
      onPick: openNearest,
    });
  }
  showMarks();
  const labels = new Map(data.lines.map((line) => [line.of, line.colour.slice(2)]));
  document.getElementById("chart-legend").replaceChildren(...[...labels].map(([label, colour]) =>
    element("span", { class: colour }, element("span", { class: "swatch" }), label)));
}

function showMarks() {
  if (!made) return;
  made.chart.marks = rows().map(atOf).map((at) => (at === marked ? { at, colour: "--accent", line: true } : { at }));
  made.plot.redraw();
}

function openNearest(time) {
  const near = rows()
    .map((row) => ({ row, distance: Math.abs(atOf(row) - time) }))
    .sort((a, b) => a.distance - b.distance)[0];
  if (near && near.distance < (NEAR_PX * WINDOW_SECONDS) / holder.clientWidth) {
    mark(atOf(near.row));
    near.row.closest("details").open = true;
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
