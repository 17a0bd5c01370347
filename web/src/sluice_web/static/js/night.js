// SPDX-License-Identifier: GPL-2.0-or-later
// One night's plots on one time axis, with the phases as bands behind them and
// auto-shaping's decisions as triangles.

import { call, path } from "./api.js";
import { element } from "./dom.js";
import { significant } from "./format.js";
import { css, plot } from "./plot.js";

const section = document.getElementById("night");
const readout = document.getElementById("night-readout");
const TITLES = { control: "alone", unshaped: "unshaped", auto: "auto-shaped" };
const HEIGHT = { perfect: 0.2, good: 0.6, poor: 1 };
const COLOUR = { perfect: "--good", good: "--warn", poor: "--bad" };
const TABLE_ROWS = 60;
const mega = (values) => values.map((value) => (value === null ? null : value / 1e6));
const clock = (seconds) => `${Math.round(seconds)} s`;

function legend(id, lines) {
  document.getElementById(id).replaceChildren(...lines.map((line) =>
    element("span", { class: `key ${line.colour.slice(2)}${line.dashed ? " dashed" : ""}` }, element("i"), line.label)));
}

function charts(measured) {
  const { seconds, windows } = measured;
  const limit = (label, colour, values) => ({ label, colour, values: mega(values), dashed: true, stepped: true });
  const constant = seconds.at_s.map(() => measured.link_bytes_per_s / 1e6);
  return [
    { id: "disk", times: seconds.at_s, lines: [
      { label: "batch readers", colour: "--c1", values: mega(seconds.readers_disk_bytes_per_s) },
      limit("their limit", "--c1", seconds.readers_disk_limit_bytes_per_s),
      { label: "web server", colour: "--c2", values: mega(seconds.web_disk_bytes_per_s) },
      limit("its limit", "--c2", seconds.web_disk_limit_bytes_per_s),
      { label: "stream", colour: "--c3", values: mega(seconds.movie_disk_bytes_per_s) }] },
    { id: "network", times: seconds.at_s, lines: [
      { label: "web server", colour: "--c2", values: mega(seconds.http_bytes_per_s) },
      limit("its limit", "--c2", seconds.web_net_limit_bytes_per_s),
      { label: "stream", colour: "--c3", values: mega(seconds.stream_bytes_per_s) },
      { label: "link", colour: "--muted", values: constant, dashed: true }] },
    { id: "received", times: windows.start_s, lines: [{ label: "stream", colour: "--c3", values: mega(windows.received_bytes_per_s) }] },
    { id: "gap", times: windows.start_s, lines: [{ label: "gap", colour: "--c7", values: windows.max_gap_ms }] },
  ];
}

function drawStrip(windows, end) {
  const canvas = document.getElementById("night-strip");
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const context = canvas.getContext("2d");
  context.fillStyle = css("--track");
  context.fillRect(0, canvas.height - ratio, canvas.width, ratio);
  // The charts' own edges, so that times stand above each other.
  const [left, right] = [46 * ratio, 25 * ratio];
  const x = (at) => left + (at / end) * (canvas.width - left - right);
  windows.verdict.forEach((verdict, index) => {
    const from = x(windows.start_s[index]);
    const tall = canvas.height * HEIGHT[verdict];
    context.fillStyle = css(COLOUR[verdict]);
    context.fillRect(from, canvas.height - tall, Math.max(x(windows.end_s[index]) - from - 0.5, 1), tall);
  });
  const count = (verdict) => windows.verdict.filter((one) => one === verdict).length;
  canvas.setAttribute("aria-label", `The stream in ${windows.verdict.length} half seconds: ${count("perfect")} perfect, ${count("good")} good, ${count("poor")} poor`);
}

function showTable({ seconds }) {
  const titles = { at_s: "At, s", http_bytes_per_s: "Web server, MB/s", stream_bytes_per_s: "Stream, MB/s", readers_disk_bytes_per_s: "Readers, MB/s",
    readers_disk_limit_bytes_per_s: "Readers' limit, MB/s", web_disk_bytes_per_s: "Web disk, MB/s", web_net_limit_bytes_per_s: "Web limit, MB/s" };
  const step = Math.max(Math.ceil(seconds.at_s.length / TABLE_ROWS), 1);
  const text = (name, value) => (value === null ? "–" : significant(name === "at_s" ? value : value / 1e6));
  const rows = [];
  for (let index = 0; index < seconds.at_s.length; index += step) {
    rows.push(element("tr", {}, ...Object.keys(titles).map((name) => element("td", { class: "num" }, text(name, seconds[name][index])))));
  }
  const head = element("thead", {}, element("tr", {}, ...Object.values(titles).map((title) => element("th", { scope: "col", class: "num" }, title))));
  document.getElementById("night-table").replaceChildren(head, element("tbody", {}, ...rows));
}

function read(chart, index) {
  if (index === null) return "";
  const parts = chart.lines.map((line) => (line.values[index] === null ? null : `${line.label} ${significant(line.values[index])}`));
  return `${chart.times[index].toFixed(1)} s: ${parts.filter(Boolean).join(", ")}`;
}

async function start() {
  let measured;
  try {
    measured = (await call("GET", path("nightly", section.dataset.night))).result.measured;
  } catch (problem) {
    const line = document.getElementById("night-error");
    line.textContent = problem.message;
    line.hidden = false;
    return;
  }
  const end = Math.max(measured.seconds.at_s.at(-1) ?? 1, measured.windows.end_s.at(-1) ?? 1);
  const bands = Object.entries(measured.phases).map(([name, phase]) => ({ from: phase.start_s, to: phase.end_s, title: TITLES[name] }));
  const marks = measured.auto_log.map((row) => ({ at: row.at_s }));
  for (const chart of charts(measured)) {
    legend(`legend-${chart.id}`, chart.lines);
    plot({
      ...chart, holder: document.getElementById(`night-${chart.id}`), span: [0, end], timeText: clock, bands, marks, sync: "night",
      onRead: (index) => { if (index !== null) readout.textContent = read(chart, index); },
    });
  }
  drawStrip(measured.windows, end);
  new ResizeObserver(() => drawStrip(measured.windows, end)).observe(document.getElementById("night-strip"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawStrip(measured.windows, end));
  showTable(measured);
  section.dataset.drawn = "yes";
}

start();
