// SPDX-License-Identifier: GPL-2.0-or-later
// Limits over time with auto-shaping's decisions as triangles on the axis.

import { call } from "./api.js";
import { element } from "./dom.js";
import { clock, significant } from "./format.js";

const WINDOW_SECONDS = 900;
const holder = document.getElementById("chart-auto");
let plot = null;
let marked = null;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const chosen = () => document.querySelector("input[name=chart-resource]:checked").value;
const rows = () => [...document.querySelectorAll("#auto-log [data-decision]")];
const atOf = (row) => Number(row.dataset.decision);
const decisions = () => rows().map(atOf);

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
      if (column.some((value) => value !== null)) lines.push({ name, domain: domains[number], field, column, colour: colours.get(name) ?? 0 });
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
    return; // The banner says what is wrong; the chart stands still.
  }
  plot?.destroy();
  plot = new window.uPlot(options(data.lines), [data.times, ...data.lines.map((line) => line.column)], holder);
  const labels = new Map(data.lines.map((line) => [`${line.name} on ${line.domain}`, line.colour]));
  document.getElementById("chart-legend").replaceChildren(...[...labels].map(([label, colour]) =>
    element("span", { class: `c${colour}` }, element("span", { class: "swatch" }), label)));
}

function options(lines) {
  const axis = { stroke: css("--muted"), font: `11px ${css("--sans")}`, grid: { stroke: css("--line"), width: 0.5 }, ticks: { show: false } };
  const now = Date.now() / 1000;
  return {
    width: Math.max(holder.clientWidth, 120), height: holder.clientHeight, legend: { show: false },
    scales: {
      x: { range: () => [now - WINDOW_SECONDS, now] },
      y: { range: (_plot, _low, high) => [0, Math.max((high ?? 0) * 1.1, 1)] },
    },
    axes: [{ ...axis, values: (_plot, ticks) => ticks.map((tick) => clock(tick, false)), space: 70, size: 26 },
      { ...axis, size: 46, values: (_plot, ticks) => ticks.map((tick) => significant(tick)) }],
    series: [{}, ...lines.map((line) => ({
      label: `${line.name} ${line.field}`, stroke: css(`--c${line.colour}`), points: { show: false },
      width: line.field.startsWith("limit") ? 1.5 : 2, dash: line.field.startsWith("limit") ? [6, 4] : undefined,
    }))],
    hooks: { draw: [drawMarks], ready: [(made) => made.over.addEventListener("click", (event) => openNearest(made, event.offsetX))] },
  };
}

function drawMarks(made) {
  const { ctx, bbox } = made;
  ctx.save();
  for (const at of decisions()) {
    const x = made.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    const base = bbox.top + bbox.height;
    ctx.fillStyle = at === marked ? css("--accent") : css("--ink");
    ctx.beginPath();
    ctx.moveTo(x, base - 9);
    ctx.lineTo(x - 5, base);
    ctx.lineTo(x + 5, base);
    ctx.fill();
    if (at === marked) ctx.fillRect(x - 0.5, bbox.top, 1, bbox.height);
  }
  ctx.restore();
}

function openNearest(made, offset) {
  const near = decisions()
    .map((at) => ({ at, distance: Math.abs(made.valToPos(at, "x") - offset) }))
    .sort((a, b) => a.distance - b.distance)[0];
  if (near && near.distance < 12) {
    mark(near.at);
    const row = rows().find((each) => atOf(each) === near.at);
    row.closest("details").open = true;
    row.scrollIntoView({ block: "nearest" });
  }
}

// Marks one decision on the axis and its sentence in the log.
export function mark(at) {
  marked = at;
  for (const row of rows()) row.classList.toggle("marked", atOf(row) === at);
  plot?.redraw();
}

document.getElementById("chart-resource").addEventListener("change", drawAuto);
