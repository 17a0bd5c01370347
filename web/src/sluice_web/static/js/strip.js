// SPDX-License-Identifier: GPL-2.0-or-later
// A stream's quality over time as a strip: the worse, the taller, so that the
// shape says it without the colour.

import { call, path } from "./api.js";

const HEIGHT = { perfect: 0.22, good: 0.6, poor: 1 };
const RANK = { perfect: 0, good: 1, poor: 2 };
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

export async function drawStrip(canvas, seconds = 3600) {
  const until = Date.now() / 1000;
  const since = until - seconds;
  let history;
  try {
    history = await call("GET", `${path("streams", canvas.dataset.strip, "history")}?since=${since.toFixed(0)}`);
  } catch {
    return; // The strip keeps what it showed; the banner says what is wrong.
  }
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 240;
  const height = canvas.clientHeight || 18;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const parts = worstPerPart(history, since, until, Math.max(Math.floor(width / 3), 1));
  context.fillStyle = style.getPropertyValue("--track");
  context.fillRect(0, height - 1, width, 1);
  parts.forEach((verdict, index) => {
    if (!verdict) return;
    context.fillStyle = style.getPropertyValue(COLOUR[verdict]);
    const tall = Math.max(height * HEIGHT[verdict], 2);
    context.fillRect((index * width) / parts.length, height - tall, width / parts.length - 0.5, tall);
  });
  const count = (verdict) => parts.filter((part) => part === verdict).length;
  canvas.setAttribute("aria-label", `Quality of ${canvas.dataset.strip}, last ${Math.round(seconds / 60)} minutes, in ${parts.length} parts: ${count("perfect")} perfect, ${count("good")} good, ${count("poor")} poor`);
}
