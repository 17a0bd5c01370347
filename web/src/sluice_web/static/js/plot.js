// SPDX-License-Identifier: GPL-2.0-or-later
// One uPlot chart over a fixed span: lines, bands behind them, marks on the
// axis. It is drawn anew when the colours or the width change.

import { element } from "./dom.js";
import { significant } from "./format.js";

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const drawn = [];

// chart: { holder, times, span() → [from, to], isClock, timeText(t), lines: [{label, colour,
// values, dashed, dotted, stepped, points}], least, top, bands: [{from, to, title}],
// marks: [{at, cross, colour, line}], onRead(index or null), onPick(time), sync }
export function plot(chart) {
  const made = { chart, plot: null };
  drawn.push(made);
  draw(made);
  return made;
}

// The chart with other figures.
export function replot(made, times, lines) {
  const labels = (of) => of.map((line) => line.label).join();
  const isSame = labels(lines) === labels(made.chart.lines);
  Object.assign(made.chart, { times, lines });
  if (isSame) made.plot.setData(dataOf(made.chart));
  else draw(made);
}

// Says which line is which.
export function legend(id, lines) {
  document.getElementById(id).replaceChildren(...lines.map((line) => {
    const key = element("span", { class: `key${line.dashed ? " dashed" : line.dotted ? " dotted" : ""}` }, element("i"), line.label);
    key.style.setProperty("--class", `var(${line.colour})`);
    return key;
  }));
}

// The figures of one time, in words.
export const readings = (lines, index) => lines.filter((line) => line.values[index] !== null)
  .map((line) => `${line.label} ${significant(line.values[index])}`).join(", ");

const dataOf = ({ times, lines }) => [times, ...lines.map((line) => line.values)];

function draw(made) {
  made.plot?.destroy();
  made.plot = new window.uPlot(options(made.chart), dataOf(made.chart), made.chart.holder);
}

function options(chart) {
  const axis = { stroke: css("--muted"), font: `11px ${css("--sans")}`, grid: { stroke: css("--line"), width: 0.5 }, ticks: { show: false } };
  return {
    width: Math.max(chart.holder.clientWidth, 120), height: chart.holder.clientHeight, legend: { show: false },
    cursor: { sync: { key: chart.sync }, points: { size: 6 }, y: false, drag: { x: false, y: false } },
    scales: {
      x: { time: Boolean(chart.isClock), range: chart.span },
      y: { range: (_plot, _low, high) => [chart.least ?? 0, chart.top ?? Math.max((high ?? 0) * 1.1, 1)] },
    },
    axes: [
      { ...axis, size: 26, space: 70, incrs: chart.increments, values: (_plot, ticks) => ticks.map((tick) => chart.timeText(tick)) },
      { ...axis, size: 46, space: 28, values: (_plot, ticks) => ticks.map((tick) => significant(tick)) },
    ],
    series: [{}, ...chart.lines.map((line) => ({
      label: line.label, stroke: css(line.colour), width: line.dashed ? 1.5 : 2, dash: line.dashed ? [6, 4] : line.dotted ? [2, 3] : undefined,
      points: { show: Boolean(line.points), size: 6, fill: css("--bg") }, spanGaps: false,
      paths: line.stepped ? window.uPlot.paths.stepped({ align: 1 }) : undefined,
    }))],
    hooks: {
      drawClear: [(made) => drawBands(made, chart.bands ?? [])],
      draw: [(made) => drawMarks(made, chart.marks ?? [])],
      setCursor: [(made) => chart.onRead?.(made.cursor.idx ?? null)],
      // By the event's own place: the cursor follows the pointer a frame later.
      ready: [({ over, posToVal }) => over.addEventListener("click", ({ clientX }) => {
        chart.onPick?.(posToVal(clientX - over.getBoundingClientRect().left, "x"));
      })],
    },
  };
}

function drawBands(made, bands) {
  const { ctx, bbox } = made;
  ctx.save();
  ctx.font = `${11 * window.devicePixelRatio}px ${css("--sans")}`;
  for (const band of bands) {
    const from = Math.max(made.valToPos(band.from, "x", true), bbox.left);
    const to = Math.min(made.valToPos(band.to, "x", true), bbox.left + bbox.width);
    ctx.fillStyle = css("--raised");
    ctx.fillRect(from, bbox.top, Math.max(to - from, 1), bbox.height);
    ctx.fillStyle = css("--muted");
    ctx.fillText(band.title, from + 4 * window.devicePixelRatio, bbox.top + 11 * window.devicePixelRatio, Math.max(to - from - 6, 1));
  }
  ctx.restore();
}

function drawMarks(made, marks) {
  const { ctx, bbox } = made;
  const size = 4 * window.devicePixelRatio;
  ctx.save();
  for (const mark of marks) {
    const x = made.valToPos(mark.at, "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    const base = bbox.top + bbox.height;
    ctx.strokeStyle = ctx.fillStyle = css(mark.colour ?? "--ink");
    ctx.lineWidth = 1.5 * window.devicePixelRatio;
    if (mark.line) ctx.fillRect(x - 0.5, bbox.top, 1, bbox.height);
    ctx.beginPath();
    if (mark.cross) {
      const y = base - size * 1.6;
      ctx.moveTo(x - size, y - size);
      ctx.lineTo(x + size, y + size);
      ctx.moveTo(x + size, y - size);
      ctx.lineTo(x - size, y + size);
      ctx.stroke();
    } else {
      ctx.moveTo(x, base - size * 2);
      ctx.lineTo(x - size, base);
      ctx.lineTo(x + size, base);
      ctx.fill();
    }
  }
  ctx.restore();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
new ResizeObserver(() => drawn.forEach(({ chart, plot: shown }) => {
  shown?.setSize({ width: Math.max(chart.holder.clientWidth, 120), height: chart.holder.clientHeight });
})).observe(document.body);
