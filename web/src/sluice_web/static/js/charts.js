// SPDX-License-Identifier: GPL-2.0-or-later
// Rate against limit, backlog and held time of one resource, a line per class.

import { call } from "./api.js";
import { element } from "./dom.js";
import { clock, significant } from "./format.js";
import { classNames, laneOf } from "./lanes.js";

const domain = document.body.dataset.domain;
const WINDOW_SECONDS = 300;
const POINTS = 720;
// Samples come twice a second; a line is not drawn over a time without any.
const GAP_SECONDS = 3;
const RESOURCES = ["blk-read", "blk-write", "net-tx", "net-rx"];
const FIELDS = ["bytes_per_second", "limit_bytes_per_second", "backlog_bytes", "held_p99_ms"];
const CHARTS = [
  { id: "chart-rate", unit: "MB/s", divisor: 1e6, fields: ["bytes_per_second", "limit_bytes_per_second"] },
  { id: "chart-backlog", unit: "MB", divisor: 1e6, fields: ["backlog_bytes"] },
  { id: "chart-held", unit: "ms", divisor: 1, fields: ["held_p99_ms"] },
];
const at = [];
const values = new Map();
let plots = [];
let drawn = "";

const chosen = () => document.querySelector("input[name=chart-resource]:checked").value;
const colourOf = (name) => getComputedStyle(laneOf(name) ?? document.body).getPropertyValue("--class").trim() || "#777";
const end = () => at.at(-1) ?? Date.now() / 1000;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const column = (key) => {
  if (!values.has(key)) values.set(key, new Array(at.length).fill(null));
  return values.get(key);
};

export function add(live) {
  const classes = live.domains?.[domain]?.classes ?? {};
  const now = live.at;
  if (at.length && now <= at.at(-1)) return;
  for (const name of classNames()) for (const resource of RESOURCES) for (const field of FIELDS) column(`${name}/${resource}/${field}`);
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
    return; // The charts begin empty; the banner says what is wrong.
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

function build() {
  for (const plot of plots) plot.destroy();
  const names = classNames();
  plots = CHARTS.map((chart) => {
    const holder = document.getElementById(chart.id);
    const options = {
      width: Math.max(holder.clientWidth, 120), height: holder.clientHeight,
      legend: { show: false }, cursor: { sync: { key: "vm" }, points: { size: 6 } },
      scales: {
        x: { range: () => [end() - WINDOW_SECONDS, end()] },
        y: { range: (_plot, _low, high) => [0, Math.max((high ?? 0) * 1.1, 1)] },
      },
      axes: [axis(), { ...axis(), size: 46, space: 28, values: (_plot, ticks) => ticks.map((tick) => significant(tick)) }],
      series: [{}, ...names.flatMap((name) => chart.fields.map((field) => line(name, field)))],
    };
    return new window.uPlot(options, dataOf(chart, names), holder);
  });
  showLegend(names);
}

function axis() {
  return {
    stroke: css("--muted"), font: `11px ${css("--sans")}`, grid: { stroke: css("--line"), width: 0.5 }, ticks: { show: false },
    values: (_plot, ticks) => ticks.map((tick) => clock(tick)), space: 60, size: 26,
  };
}

function line(name, field) {
  const isLimit = field === "limit_bytes_per_second";
  return {
    label: isLimit ? `${name} limit` : name, stroke: colourOf(name), width: isLimit ? 1.5 : 2,
    dash: isLimit ? [6, 4] : undefined, points: { show: false }, spanGaps: false,
    paths: isLimit ? window.uPlot.paths.stepped({ align: 1 }) : undefined,
  };
}

const dataOf = (chart, names) => [at, ...names.flatMap((name) => chart.fields.map((field) =>
  column(`${name}/${chosen()}/${field}`).map((value) => (value === null ? null : value / chart.divisor))))];

function showLegend(names) {
  document.getElementById("chart-legend").replaceChildren(...names.map((name) =>
    element("span", { class: `c${laneOf(name)?.dataset.colour ?? 0}` }, element("span", { class: "swatch" }), name)));
}

function draw(force = false) {
  const names = classNames();
  const wanted = names.join();
  if (force || drawn !== wanted) {
    drawn = wanted;
    build();
  } else {
    plots.forEach((plot, index) => plot.setData(dataOf(CHARTS[index], names)));
  }
  if (document.querySelector(".behind").open) showTable(names);
}

// One row per ten seconds, newest first.
function showTable(names) {
  const cell = (key, divisor) => {
    const value = column(key)[row];
    return element("td", { class: "num" }, value === null ? "–" : significant(value / divisor));
  };
  const head = element("tr", {}, element("th", { scope: "col" }, "Time"), ...names.flatMap((name) =>
    ["rate MB/s", "limit MB/s", "backlog MB", "held ms"].map((title) => element("th", { scope: "col", class: "num" }, `${name} ${title}`))));
  const body = element("tbody");
  let row = at.length - 1;
  for (let shown = 0; row >= 0 && shown < 30; row -= 20, shown += 1) {
    body.append(element("tr", {}, element("th", { scope: "row" }, clock(at[row])), ...names.flatMap((name) =>
      FIELDS.map((field) => cell(`${name}/${chosen()}/${field}`, field === "held_p99_ms" ? 1 : 1e6)))));
  }
  document.getElementById("chart-table").replaceChildren(element("thead", {}, head), body);
}

export function start() {
  document.getElementById("chart-resource").addEventListener("change", () => draw(true));
  document.querySelector(".behind").addEventListener("toggle", () => draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  new ResizeObserver(() => plots.forEach((plot, index) => {
    const holder = document.getElementById(CHARTS[index].id);
    plot.setSize({ width: Math.max(holder.clientWidth, 120), height: holder.clientHeight });
  })).observe(document.querySelector(".chart-grid"));
  loadHistory();
}
