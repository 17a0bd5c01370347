// SPDX-License-Identifier: GPL-2.0-or-later
// The lanes: one row per class, one bar per resource. Bars of one column share
// a scale, so that they can be compared; it grows at once and shrinks late.

import { call, path } from "./api.js";
import { announce, changed } from "./changes.js";
import { mayChange, setText } from "./dom.js";
import { act, give, takeAway } from "./forms.js";
import { burstLeft, linkRate, milliseconds, niceAbove, parseRate, rate, significant, size } from "./format.js";
import { last } from "./live.js";

const domain = document.body.dataset.domain;
const SMALLEST_SCALE = 1e6;
const SHRINK_AFTER_MS = 10_000;
// After a limit was sent, older news of it may still come.
const HOLD_MS = 2000;
const HELD_TITLE = "99 of 100 requests were held by Sluice for no longer than this";
const UNTAGGED_TITLE = "Untagged: requests whose class nothing chose, neither a tag nor a port of a process";
const DROPS = {
  backlog: "found the queue full", codel: "dropped by CoDel", connection: "one connection too many",
  window: "too late", reset: "lost with their queue",
};
const scales = new Map();

const lanes = () => document.getElementById("lanes");
const cellsOf = (lane) => lane.querySelectorAll(".cell");
export const classNames = () => [...lanes().querySelectorAll(".lane[data-class]")].map((lane) => lane.dataset.class);
export const laneOf = (name) => lanes().querySelector(`.lane[data-class="${CSS.escape(name)}"]`);

function scaleFor(resource, samples, now) {
  const rates = samples.map((sample) => sample.bytes_per_second ?? 0);
  const limits = samples.map((sample) => sample.limit_bytes_per_second ?? 0);
  const fastest = Math.max(0, ...rates);
  // A limit far above the traffic does not flatten the bars; its tick stays at the end.
  const highest = Math.min(Math.max(0, ...limits) * 1.1, Math.max(fastest * 20, 1e8));
  const wanted = niceAbove(Math.max(fastest * 1.05, highest, SMALLEST_SCALE));
  const held = scales.get(resource);
  if (!held || wanted >= held.value || now - held.since > SHRINK_AFTER_MS) {
    scales.set(resource, { value: wanted, since: now });
  }
  return scales.get(resource).value;
}

export function showLive(live) {
  const samples = live.domains?.[domain]?.classes ?? {};
  const now = performance.now();
  for (const head of lanes().querySelectorAll("[data-scale]")) {
    const resource = head.dataset.scale;
    const column = Object.values(samples).map((each) => each[resource] ?? {});
    const scale = scaleFor(resource, column, now);
    setText(head, `0 to ${rate(scale)}`);
  }
  for (const lane of lanes().querySelectorAll(".lane[data-class]")) {
    for (const cell of cellsOf(lane)) {
      showCell(cell, samples[lane.dataset.class]?.[cell.dataset.resource]);
    }
  }
  for (const cell of cellsOf(lanes().querySelector(".ceiling"))) {
    const all = Object.values(samples).map((each) => each[cell.dataset.resource]?.bytes_per_second ?? 0);
    setText(cell.querySelector(".rate"), all.length ? rate(all.reduce((sum, one) => sum + one, 0)) : "–");
  }
}

function showCell(cell, sample) {
  const scale = scales.get(cell.dataset.resource)?.value ?? SMALLEST_SCALE;
  const bar = cell.querySelector(".bar");
  const now = Math.min((sample?.bytes_per_second ?? 0) / scale, 1);
  const backlog = sample?.backlog_bytes ?? 0;
  // The hatched tail is the backlog against one second of the scale.
  const behind = backlog > 0 ? Math.min(Math.max(backlog / scale, 0.02), 1 - now) : 0;
  const held = sample?.held_p99_ms ?? 0;
  setText(cell.querySelector(".rate"), sample ? rate(sample.bytes_per_second) : "–");
  if (cell.dataset.resource.startsWith("net-")) cell.querySelector(".rate").title = linkRate(sample?.bytes_per_second);
  const lost = sample?.dropped_per_second ?? 0;
  const untagged = Math.round(100 * (sample?.untagged_share ?? 0));
  const figures = [held > 0 && `held ${milliseconds(held)}`, lost > 0 && `${significant(lost)} dropped/s`, untagged > 0 && `${untagged} % untagged`];
  setText(cell.querySelector(".held"), figures.filter(Boolean).join(", "));
  cell.querySelector(".held").title = [lostWords(sample), untagged > 0 && UNTAGGED_TITLE].filter(Boolean).join(". ") || HELD_TITLE;
  setText(cell.querySelector(".burst"), sample ? burstLeft(sample, cell.dataset.policy === "leaky-bucket") : "");
  bar.style.setProperty("--now", now.toFixed(4));
  bar.style.setProperty("--behind", behind.toFixed(4));
  bar.title = backlog > 0 ? `${size(backlog)} in ${sample.backlog_requests} requests wait` : "";
  if (!cell.classList.contains("dragging")) placeTick(cell, sample?.limit_bytes_per_second ?? null, scale);
  placePromise(cell, scale);
}

// The mark of a reservation or window; beyond the end of the scale it is not shown.
function placePromise(cell, scale) {
  const promised = Number(cell.dataset.reserved ?? 0);
  cell.querySelector(".promise").hidden = !(promised > 0 && promised <= scale);
  cell.querySelector(".bar").style.setProperty("--promised", (promised / scale).toFixed(4));
}

function reservedOf(scheduling) {
  const window = scheduling?.window;
  return window ? (window.bytes * 1e9) / window.period_ns : scheduling?.reservation_bytes_per_second ?? 0;
}

// Frames that were dropped or marked, by reason.
function lostWords(sample) {
  const rates = { ...sample?.drops_per_second, "marked with ECN": sample?.marked_per_second ?? 0 };
  const parts = Object.entries(rates).filter(([, each]) => each > 0).map(([reason, each]) => `${significant(each)}/s ${DROPS[reason] ?? reason}`);
  return parts.length ? `Frames: ${parts.join(", ")}` : "";
}

function placeTick(cell, limit, scale) {
  const tick = cell.querySelector(".tick");
  tick.classList.toggle("none", limit === null);
  cell.querySelector(".bar").style.setProperty("--at", limit === null ? 1 : Math.min(limit / scale, 1).toFixed(4));
}

// Fresh limits from the controller, unless somebody is typing there.
export function showLimits(details) {
  for (const grant of details.classes) {
    for (const cell of laneOf(grant.class) ? cellsOf(laneOf(grant.class)) : []) {
      const resource = cell.dataset.resource;
      const own = grant.limits?.[resource] ?? {};
      cell.dataset.reserved = reservedOf(grant.scheduling?.[resource]);
      cell.dataset.policy = grant.scheduling?.[resource]?.policy ?? "";
      const effective = grant.effective_limits?.[resource]?.bytes_per_second ?? null;
      fill(cell.querySelector("input"), own);
      const auto = cell.querySelector(".auto-limit");
      const differs = effective !== (own.bytes_per_second ?? null);
      auto.hidden = !differs;
      setText(auto, differs ? `auto ${rate(effective)}` : "");
      auto.title = "Auto-shaping holds the class here for now; your own limit stays beside it";
    }
  }
  for (const cell of cellsOf(lanes().querySelector(".ceiling"))) {
    fill(cell.querySelector("input"), details.ceiling?.[cell.dataset.resource] ?? {});
  }
}

const isBusy = (input) => input === document.activeElement || Number(input.dataset.heldUntil ?? 0) > performance.now();

function fill(input, own) {
  if (isBusy(input)) input.dataset.missed = JSON.stringify(own);
  else remember(input, own);
}

// News that came while somebody was at it; nothing comes again until there is a change.
function catchUp(input) {
  if (input.dataset.missed === undefined || isBusy(input) || input.getAttribute("aria-invalid") === "true") return;
  remember(input, ownOf(input));
}

const ownOf = (input) => JSON.parse(input.dataset.missed ?? input.dataset.limit);

function remember(input, own) {
  delete input.dataset.missed;
  const text = own.bytes_per_second ? rate(own.bytes_per_second) : "unlimited";
  input.dataset.limit = JSON.stringify(own);
  input.dataset.own = own.bytes_per_second ?? "";
  if (input.value !== text) input.value = text;
}

const shownName = (input) => input.dataset.class ?? "the VM";
const hintOf = (input) => document.getElementById(input.getAttribute("aria-describedby"));

function hint(input, text, isError = false) {
  const line = hintOf(input);
  line.textContent = text;
  line.hidden = !text;
  line.classList.toggle("error", isError);
  input.setAttribute("aria-invalid", isError ? "true" : "false");
}

// The effect of a value, told before it is set.
function foresee(input, value) {
  const samples = last("live")?.domains?.[domain]?.classes ?? {};
  const chosen = input.dataset.class ? [samples[input.dataset.class]] : Object.values(samples);
  const now = chosen.reduce((sum, each) => sum + (each?.[input.dataset.resource]?.bytes_per_second ?? 0), 0);
  const name = shownName(input);
  if (value === null) return `Unlimited: ${name} takes what the disk or link gives. Type 20 MB/s or 160 Mbit/s to limit it.`;
  const after = now > value ? "it will wait" : "nothing waits at this rate";
  return `At ${rate(value)}: ${name} now takes ${rate(now)}, ${after}. Enter sets it.`;
}

// Sends the limit of a class, or of the VM, on one resource. The rest of the limit (bursts,
// operations) stays.
function send({ name, resource }, limit) {
  const of = name ? ["classes", name, "limits"] : ["ceiling"];
  const where = path("domains", domain, ...of, resource);
  const isEmpty = Object.values(limit).every((value) => value === null);
  return isEmpty ? call("DELETE", where) : call("PUT", where, limit);
}

const inputOf = ({ name, resource }) => lanes().querySelector(name
  ? `input[data-class="${CSS.escape(name)}"][data-resource="${resource}"]`
  : `input[data-ceiling][data-resource="${resource}"]`);

async function setLimit(input, value) {
  const before = ownOf(input);
  if ((before.bytes_per_second ?? null) === value) {
    remember(input, before);
    return hint(input, "");
  }
  const target = { name: input.dataset.class, resource: input.dataset.resource };
  const after = { ...before, bytes_per_second: value };
  if (value === null) after.burst_bytes = null;
  input.dataset.heldUntil = performance.now() + HOLD_MS;
  setTimeout(catchUp, HOLD_MS + 1, input);
  try {
    await send(target, after);
  } catch (problem) {
    return hint(input, problem.message, true);
  }
  remember(input, after);
  hint(input, "");
  const title = input.closest(".cell").querySelector(".cell-title").textContent.toLowerCase();
  changed(`${shownName(input)}, ${title}: ${value === null ? "unlimited" : rate(value)}.`, async () => {
    await send(target, before);
    const present = inputOf(target);
    if (present) remember(present, before);
  });
  announce();
}

function readInput(input) {
  try {
    const value = parseRate(input.value);
    hint(input, foresee(input, value));
    return { value };
  } catch (error) {
    hint(input, error.message, true);
    return null;
  }
}

function dragTick(event) {
  const tick = event.target.closest?.(".tick:not(.fixed)");
  if (!tick || event.button !== 0) return;
  event.preventDefault();
  const cell = tick.closest(".cell");
  const bar = cell.querySelector(".bar");
  const input = cell.querySelector("input");
  const box = bar.getBoundingClientRect();
  const scale = scales.get(cell.dataset.resource)?.value ?? SMALLEST_SCALE;
  let value;
  cell.classList.add("dragging");
  tick.setPointerCapture(event.pointerId);
  const move = (moved) => {
    const share = (moved.clientX - box.left) / box.width;
    // Beyond the end means no limit; below, at least the smallest useful one.
    value = share > 1.02 ? null : Math.max(Number((Math.max(share, 0.005) * scale).toPrecision(2)), 1024);
    input.value = value === null ? "unlimited" : rate(value);
    placeTick(cell, value, scale);
    hint(input, foresee(input, value));
  };
  const end = (ended) => {
    tick.removeEventListener("pointermove", move);
    cell.classList.remove("dragging");
    // Without a move there is no value yet, which would be no limit.
    if (ended.type === "pointerup" && ended.clientX !== event.clientX && value !== undefined) setLimit(input, value);
    else remember(input, ownOf(input));
    hint(input, "");
  };
  tick.addEventListener("pointermove", move);
  tick.addEventListener("pointerup", end, { once: true });
  tick.addEventListener("pointercancel", end, { once: true });
}

export function start() {
  if (!mayChange()) return;
  const isLimit = (target) => target.matches?.(".lanes .limit input");
  document.addEventListener("focusin", (event) => {
    if (isLimit(event.target)) {
      event.target.select();
      readInput(event.target);
    }
  });
  document.addEventListener("input", (event) => isLimit(event.target) && readInput(event.target));
  document.addEventListener("change", (event) => {
    if (!isLimit(event.target)) return;
    const read = readInput(event.target);
    if (read) setLimit(event.target, read.value);
  });
  document.addEventListener("focusout", (event) => {
    if (isLimit(event.target) && event.target.getAttribute("aria-invalid") !== "true") hint(event.target, "");
    // Only then is it no longer the active one.
    if (isLimit(event.target)) setTimeout(catchUp, 0, event.target);
  });
  document.addEventListener("keydown", (event) => {
    if (!isLimit(event.target)) return;
    if (event.key === "Escape") {
      remember(event.target, ownOf(event.target));
      hint(event.target, "");
      event.target.blur();
    }
  });
  document.addEventListener("pointerdown", dragTick);
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "grant-form") return;
    event.preventDefault();
    act(() => give(domain, event.target.elements.class.value));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button[data-action=revoke]");
    if (!button) return;
    event.preventDefault();
    act(() => takeAway(domain, button.dataset.class, button.form));
  });
}
