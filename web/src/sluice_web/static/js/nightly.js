// SPDX-License-Identifier: GPL-2.0-or-later
// The trend over the nights: the stream's stalls unshaped and shaped, the share that the
// background kept, the time until auto-shaping settled. A night without figures is
// a gap with a cross; a click on a chart marks the night in the list.

import { call } from "./api.js";
import { significant } from "./format.js";
import { showError } from "./forms.js";
import { plot } from "./plot.js";

const DAY = 86_400;
const section = document.getElementById("trend");
const readout = document.getElementById("trend-readout");
const date = (at) => new Date(at * 1000).toLocaleDateString([], { day: "numeric", month: "short" });
const percent = (ratio) => (ratio === null || ratio === undefined ? null : ratio * 100);
const each = (nights, of) => nights.map((night) => (night.figures ? of(night.figures) ?? null : null));

function describe(night) {
  const when = date(night.started_at);
  if (!night.figures) return `${when}: ${night.outcome}`;
  const { unshaped, auto, background_ratio: kept, settled_after_s: settled } = night.figures;
  const parts = [
    `stalled ${significant(unshaped.stall_seconds)} s unshaped, ${significant(auto.stall_seconds)} s shaped`,
    kept === null ? null : `background kept ${significant(kept * 100)} %`,
    settled === null ? "never settled" : `settled after ${significant(settled)} s`,
  ];
  return `${when}: ${parts.filter(Boolean).join(", ")}`;
}

function markNearest(nights, at) {
  const near = nights.reduce((best, night) => (Math.abs(night.started_at - at) < Math.abs(best.started_at - at) ? night : best));
  for (const row of document.querySelectorAll(".nights tbody tr")) {
    const wanted = Number(row.dataset.at) === near.started_at;
    row.classList.toggle("marked", wanted);
    if (wanted) row.scrollIntoView({ block: "nearest" });
  }
}

function charts(nights) {
  const both = (of) => [
    { label: "unshaped", colour: "--c6", dashed: true, points: true, values: each(nights, (f) => of(f.unshaped)) },
    { label: "auto-shaped", colour: "--c5", points: true, values: each(nights, (f) => of(f.auto)) },
  ];
  const shaped = (of) => [{ label: "auto-shaped", colour: "--c5", points: true, values: each(nights, of) }];
  return [
    { id: "trend-stalled", lines: both((phase) => phase.stall_seconds) },
    { id: "trend-delivered", lines: both((phase) => percent(phase.delivered_ratio)), top: 105 },
    { id: "trend-background", lines: shaped((figures) => percent(figures.background_ratio)), top: 120 },
    { id: "trend-settled", lines: shaped((figures) => figures.settled_after_s) },
  ];
}

async function start() {
  let nights;
  try {
    nights = (await call("GET", `/nightly?limit=${section.dataset.most}`)).reverse();
  } catch (problem) {
    showError(document.getElementById("trend-error"), problem);
    return;
  }
  const times = nights.map((night) => night.started_at);
  // One night alone stands in the middle of a week.
  const margin = Math.max((times.at(-1) - times[0]) * 0.03, times.length < 3 ? 3 * DAY : DAY / 3);
  const marks = nights.filter((night) => !night.figures).map((night) => (
    { at: night.started_at, cross: true, colour: night.outcome === "error" ? "--bad" : "--warn" }));
  for (const chart of charts(nights)) {
    plot({
      ...chart, holder: document.getElementById(chart.id), times, marks, sync: "nights",
      span: () => [times[0] - margin, times.at(-1) + margin], timeText: date, increments: [1, 2, 7, 14, 28, 91].map((days) => days * DAY),
      onRead: (index) => { readout.textContent = index === null ? "" : describe(nights[index]); },
      onPick: (at) => markNearest(nights, at),
    });
  }
  section.dataset.drawn = "yes";
}

start();
