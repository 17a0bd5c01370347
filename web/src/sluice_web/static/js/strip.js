// SPDX-License-Identifier: GPL-2.0-or-later
// A stream's quality over time as a strip: the worse, the taller, so that the
// shape says it without the colour.

import { call, path } from "./api.js";
import { css } from "./plot.js";

const HEIGHT = { perfect: 0.22, good: 0.6, poor: 1 };
const RANK = { perfect: 0, good: 1, poor: 2 };
// A verdict comes each ten seconds at least: finer parts might have none.
const LEAST_PART_S = 15;
const COLOUR = { perfect: "--good", good: "--warn", poor: "--bad" };

// The worst verdict of each of `count` equal parts of the window; null: none.
export function worstPerPart(history, since, until, count) {
  const parts = new Array(count).fill(null);
  for (const row of history) {
    const index = Math.floor(((row.at - since) / (until - since)) * count);
    if (index < 0 || index >= count || !(row.verdict in RANK)) continue;
    if (parts[index] === null || RANK[row.verdict] > RANK[parts[index]]) parts[index] = row.verdict;
  }
  return parts;
}

// Between the margins, in pixels.
export async function drawStrip(canvas, seconds = 3600, left = 0, right = 0) {
  const name = canvas.dataset.strip ?? canvas.dataset.past;
  const until = Date.now() / 1000;
  const since = until - seconds;
  let history;
  try {
    history = await call("GET", `${path("streams", name, "history")}?since=${since.toFixed(0)}`);
  } catch {
    return; // The strip stays as it is; the banner gives the reason.
  }
  const width = (canvas.clientWidth || 240) - left - right;
  const count = Math.max(Math.floor(Math.min(width / 3, seconds / LEAST_PART_S)), 1);
  const parts = worstPerPart(history, since, until, count);
  paint(canvas, parts.map((verdict, index) => ({ verdict, from: index / count, to: (index + 1) / count })), left, right);
  canvas.setAttribute("aria-label", `Quality of ${name}, last ${Math.round(seconds / 60)} minutes, in ${count} parts: ${counted(parts)}`);
}

export const counted = (verdicts) =>
  Object.keys(RANK).map((word) => `${verdicts.filter((one) => one === word).length} ${word}`).join(", ");

// Strips are drawn anew when the colours or the width change.
const painted = new Map();
const repaint = () => painted.forEach((how, canvas) => draw(canvas, ...how));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
window.addEventListener("resize", repaint);

// bars: [{verdict, from, to}] as shares of the width between the margins (pixels).
export function paint(canvas, bars, left = 0, right = 0) {
  for (const old of painted.keys()) if (!old.isConnected) painted.delete(old);
  painted.set(canvas, [bars, left, right]);
  draw(canvas, bars, left, right);
}

function draw(canvas, bars, left, right) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 240;
  const height = canvas.clientHeight || 18;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = css("--track");
  context.fillRect(0, height - 1, width, 1);
  const x = (share) => left + share * (width - left - right);
  for (const { verdict, from, to } of bars.filter((bar) => bar.verdict in RANK)) {
    context.fillStyle = css(COLOUR[verdict]);
    const tall = Math.max(height * HEIGHT[verdict], 2);
    context.fillRect(x(from), height - tall, Math.max(x(to) - x(from) - 0.5, 1), tall);
  }
}
