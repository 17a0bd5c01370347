// SPDX-License-Identifier: GPL-2.0-or-later
// One night's plots on one time axis, with the phases as bands behind them and
// auto-shaping's decisions as triangles.

import { call, path } from "./api.js";
import { figures } from "./dom.js";
import { significant } from "./format.js";
import { showError } from "./forms.js";
import { legend, plot, readings } from "./plot.js";
import { counted, paint } from "./strip.js";

const section = document.getElementById("night");
const readout = document.getElementById("night-readout");
const TITLES = { control: "alone", unshaped: "unshaped", auto: "auto-shaped" };
const TABLE_ROWS = 60;
const mega = (values) => values.map((value) => (value === null ? null : value / 1e6));
const clock = (seconds) => `${Math.round(seconds)} s`;

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

function drawStrip({ verdict, start_s: start, end_s: until }, end) {
  const canvas = document.getElementById("night-strip");
  // The charts' own edges, so that times stand above each other.
  paint(canvas, verdict.map((one, index) => ({ verdict: one, from: start[index] / end, to: until[index] / end })), 46, 25);
  canvas.setAttribute("aria-label", `The stream in ${verdict.length} half seconds: ${counted(verdict)}`);
}

function showTable({ seconds }) {
  const titles = { at_s: "At, s", http_bytes_per_s: "Web server, MB/s", stream_bytes_per_s: "Stream, MB/s", readers_disk_bytes_per_s: "Readers, MB/s",
    readers_disk_limit_bytes_per_s: "Readers' limit, MB/s", web_disk_bytes_per_s: "Web disk, MB/s", web_net_limit_bytes_per_s: "Web limit, MB/s" };
  const step = Math.max(Math.ceil(seconds.at_s.length / TABLE_ROWS), 1);
  const text = (name, value) => (value === null ? "–" : significant(name === "at_s" ? value : value / 1e6));
  const rows = [];
  for (let index = 0; index < seconds.at_s.length; index += step) rows.push(Object.keys(titles).map((name) => text(name, seconds[name][index])));
  figures(document.getElementById("night-table"), Object.values(titles), rows);
}

function read(chart, index) {
  if (index === null) return "";
  return `${chart.times[index].toFixed(1)} s: ${readings(chart.lines, index)}`;
}

async function start() {
  let measured;
  try {
    measured = (await call("GET", path("nightly", section.dataset.night))).result.measured;
  } catch (problem) {
    showError(document.getElementById("night-error"), problem);
    return;
  }
  const end = Math.max(measured.seconds.at_s.at(-1) ?? 1, measured.windows.end_s.at(-1) ?? 1);
  const bands = Object.entries(measured.phases).map(([name, phase]) => ({ from: phase.start_s, to: phase.end_s, title: TITLES[name] }));
  const marks = measured.auto_log.map((row) => ({ at: row.at_s }));
  for (const chart of charts(measured)) {
    legend(`legend-${chart.id}`, chart.lines);
    plot({
      ...chart, holder: document.getElementById(`night-${chart.id}`), span: () => [0, end], timeText: clock, bands, marks, sync: "night",
      onRead: (index) => { if (index !== null) readout.textContent = read(chart, index); },
    });
  }
  drawStrip(measured.windows, end);
  showTable(measured);
  section.dataset.drawn = "yes";
}

start();
