// SPDX-License-Identifier: GPL-2.0-or-later
// Rate against limit, backlog and held time of one resource, a line per class.

import { call } from "./api.js";
import { element, figures, RESOURCES } from "./dom.js";
import { clock, significant } from "./format.js";
import { classNames, laneOf } from "./lanes.js";
import { plot, replot } from "./plot.js";

const domain = document.body.dataset.domain;
const WINDOW_SECONDS = 300;
const POINTS = 720;
// Samples come twice a second; a line is not drawn over a time without any.
const GAP_SECONDS = 3;
const FIELDS = ["bytes_per_second", "limit_bytes_per_second", "backlog_bytes", "held_p99_ms"];
const CHARTS = [
  { id: "chart-rate", unit: "MB/s", divisor: 1e6, fields: ["bytes_per_second", "limit_bytes_per_second"] },
  { id: "chart-backlog", unit: "MB", divisor: 1e6, fields: ["backlog_bytes"] },
  { id: "chart-held", unit: "ms", divisor: 1, fields: ["held_p99_ms"] },
];
const at = [];
const values = new Map();
let plots = [];

const chosen = () => document.querySelector("input[name=chart-resource]:checked").value;
const end = () => at.at(-1) ?? Date.now() / 1000;
const column = (key) => {
  if (!values.has(key)) values.set(key, new Array(at.length).fill(null));
  return values.get(key);
};

export function add(live) {
  const classes = live.domains?.[domain]?.classes ?? {};
  const now = live.at;
  if (at.length && now <= at.at(-1)) return;
  for (const name of classNames()) for (const resource of Object.keys(RESOURCES)) for (const field of FIELDS) column(`${name}/${resource}/${field}`);
  if (at.length && now - at.at(-1) > GAP_SECONDS) {
    at.push((at.at(-1) + now) / 2);
    for (const series of values.values()) series.push(null);
  }
  at.push(now);
  for (const [key, series] of values) {
    const [name, resource, field] = key.split("/");
    series.push(classes[name]?.[resource]?.[field] ?? null);
  }
  while (at.length > POINTS || (at.length && at[0] < now - WINDOW_SECONDS)) {
    at.shift();
    for (const series of values.values()) series.shift();
  }
  draw();
}

// The five minutes before the page was opened, from the controller's memory.
async function loadHistory() {
  const since = Math.floor(Date.now() / 1000) - WINDOW_SECONDS;
  let history;
  try {
    history = await call("GET", `/history?${new URLSearchParams({ domain, since, step: 1 })}`);
  } catch {
    return; // The charts begin empty; the banner gives the reason.
  }
  const end = at[0] ?? Infinity;
  const count = history.at.filter((time) => time < end).length;
  for (const key of Object.keys(history.series)) column(key);
  for (const [key, series] of values) {
    const old = (history.series[key] ?? []).slice(0, count);
    series.unshift(...old, ...new Array(count - old.length).fill(null));
  }
  at.unshift(...history.at.slice(0, count));
  draw();
}

const linesOf = (chart) => classNames().flatMap((name) => chart.fields.map((field) => {
  const isLimit = field === "limit_bytes_per_second";
  return {
    label: isLimit ? `${name} limit` : name, colour: `--c${laneOf(name).dataset.colour}`, dashed: isLimit, stepped: isLimit,
    values: column(`${name}/${chosen()}/${field}`).map((value) => (value === null ? null : value / chart.divisor)),
  };
}));

function draw() {
  const names = classNames();
  plots.forEach((made, index) => replot(made, at, linesOf(CHARTS[index])));
  document.getElementById("chart-legend").replaceChildren(...names.map((name) =>
    element("span", { class: `c${laneOf(name).dataset.colour}` }, element("span", { class: "swatch" }), name)));
  if (document.querySelector(".behind").open) showTable(names);
}

// One row per ten seconds, newest first.
function showTable(names) {
  const titles = names.flatMap((name) => ["rate MB/s", "limit MB/s", "backlog MB", "held ms"].map((title) => `${name} ${title}`));
  const text = (value, divisor) => (value === null ? "–" : significant(value / divisor));
  const rows = [];
  for (let row = at.length - 1; row >= 0 && rows.length < 30; row -= 20) {
    rows.push([clock(at[row]), ...names.flatMap((name) =>
      FIELDS.map((field) => text(column(`${name}/${chosen()}/${field}`)[row], field === "held_p99_ms" ? 1 : 1e6)))]);
  }
  figures(document.getElementById("chart-table"), ["Time", ...titles], rows);
}

export function start() {
  document.getElementById("chart-resource").addEventListener("change", draw);
  document.querySelector(".behind").addEventListener("toggle", draw);
  plots = CHARTS.map((chart) => plot({
    holder: document.getElementById(chart.id), times: at, lines: [], span: () => [end() - WINDOW_SECONDS, end()],
    isClock: true, timeText: clock, sync: "vm",
  }));
  loadHistory();
}
