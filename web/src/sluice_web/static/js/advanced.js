// SPDX-License-Identifier: GPL-2.0-or-later
// What a class has beside its limits: a form per resource for scheduling, and
// for frames one for the queue. A form is sent as a whole; what it does not show
// stays as it is.

import { call, path } from "./api.js";
import { announce, changed } from "./changes.js";
import { mayChange, setText } from "./dom.js";
import { binarySize, count, duration, given, rate } from "./format.js";
import { attempt } from "./forms.js";

const domain = document.body.dataset.domain;
const USUAL = {
  scheduling: {
    reservation_bytes_per_second: null, policy: "token-bucket", peak_bytes_per_second: null,
    minimum_charge_bytes: null, dynamic: "none", charge: "all", window: null,
  },
  queues: {
    limit_bytes: null, limit_packets: null, aqm: "none", ecn: false,
    connections_per_second: null, burst_connections: null,
  },
};
const shown = (value, format) => (value === null || value === undefined ? "" : format(value));
// How a field shows its value, and what is sent of what was typed.
const FIELDS = {
  reservation_bytes_per_second: [rate, given],
  peak_bytes_per_second: [rate, given],
  minimum_charge_bytes: [binarySize, given],
  limit_bytes: [binarySize, given],
  limit_packets: [String, count],
  connections_per_second: [String, count],
  burst_connections: [String, count],
};
const formsIn = (root) => root.querySelectorAll("form.knobs");
const ownOf = (form) => ({ ...USUAL[form.dataset.kind], ...JSON.parse(form.dataset.own) });

function windowText(window) {
  return window ? `${binarySize(window.bytes)} / ${duration(window.period_ns)}` : "";
}

function lateText(window) {
  return window?.may_miss ? `${window.may_miss} of ${window.of}` : "";
}

function fill(form) {
  const own = ownOf(form);
  for (const field of form.elements) {
    if (!field.name) continue;
    if (field.name === "window") field.value = windowText(own.window);
    else if (field.name === "may_miss") field.value = lateText(own.window);
    else if (field.type === "checkbox") field.checked = own[field.name];
    else if (FIELDS[field.name]) field.value = shown(own[field.name], FIELDS[field.name][0]);
    else field.value = own[field.name];
  }
  adapt(form);
}

// Only what goes with the present choice can be filled in.
function adapt(form) {
  const { policy, peak_bytes_per_second: peak, window, may_miss: late, aqm, ecn } = form.elements;
  if (peak) peak.closest("label").hidden = policy.value !== "token-leaky";
  if (late) late.closest("label").hidden = window.value.trim() === "";
  if (ecn) ecn.closest("label").hidden = aqm.value === "none";
}

function readWindow(text, late) {
  if (given(text) === null) return null;
  const [bytes, period, ...rest] = text.split("/");
  if (period === undefined || rest.length) throw new Error(`“${text}” is not a window; type for example 64 KiB / 20 ms.`);
  const match = /^\s*(\d+)\s*(?:of|\/)\s*(\d+)\s*$/.exec(late);
  if (late.trim() && !match) throw new Error(`“${late}” does not say how many may be late; type for example 1 of 10.`);
  const [few, of] = match ? [Number(match[1]), Number(match[2])] : [0, 1];
  return { bytes: bytes.trim(), period_ns: period.trim(), may_miss: few, of };
}

function windowOf(form, own) {
  const { window, may_miss: late } = form.elements;
  const alone = window.value === windowText(own) && late.value === lateText(own);
  return alone ? own : readWindow(window.value, late.value);
}

// A field that was left alone keeps its value, which may have more digits than it shows.
function read(form) {
  const own = ownOf(form);
  const body = { ...own };
  for (const field of form.elements) {
    if (!field.name || field.name === "may_miss") continue;
    if (field.name === "window") body.window = windowOf(form, own.window);
    else if (field.type === "checkbox") body[field.name] = field.checked;
    else if (!FIELDS[field.name]) body[field.name] = field.value;
    else {
      const [format, parse] = FIELDS[field.name];
      if (field.value !== shown(own[field.name], format)) body[field.name] = parse(field.value);
    }
  }
  if (body.policy !== undefined && body.policy !== "token-leaky") body.peak_bytes_per_second = null;
  if (body.aqm === "none") body.ecn = false;
  return body;
}

// What is not as by default, in a few words.
function words(kind, own) {
  const one = { ...USUAL[kind], ...own };
  const parts = kind === "scheduling" ? [
    one.reservation_bytes_per_second !== null && `at least ${rate(one.reservation_bytes_per_second)}`,
    one.window && `${binarySize(one.window.bytes)} in each ${duration(one.window.period_ns)}`,
    one.policy === "leaky-bucket" && "evenly spaced",
    one.policy === "token-leaky" && `peak ${rate(one.peak_bytes_per_second)}`,
    one.dynamic === "latency" && "small flows first",
    one.dynamic === "throughput" && "large flows first",
    one.charge === "device" && "charged for what the disk did",
    one.minimum_charge_bytes !== null && `charged at least ${binarySize(one.minimum_charge_bytes)}`,
  ] : [
    (one.limit_bytes !== null || one.limit_packets !== null) && "bounded queue",
    one.aqm === "codel" && (one.ecn ? "CoDel with ECN" : "CoDel"),
    one.connections_per_second !== null && `${one.connections_per_second} new connections/s`,
  ];
  return parts.filter(Boolean).join(", ");
}

function summarise(details) {
  const texts = [...formsIn(details)].map((form) => {
    const text = words(form.dataset.kind, JSON.parse(form.dataset.own));
    const title = form.closest(".knobs-column").querySelector("legend").textContent.toLowerCase();
    return text && `${title} ${text}`;
  });
  setText(details.querySelector("[data-testid=advanced-summary]"), texts.filter(Boolean).join("; ") || "as by default");
}

const isTyped = (form) => form.contains(document.activeElement) && document.activeElement.type !== "submit";

function take(form, own) {
  delete form.dataset.missed;
  if (form.dataset.own === own) return;
  form.dataset.own = own;
  fill(form);
}

// Fresh values from the controller; a form that somebody is at work in gets them
// afterwards, or it would show old ones and set them again.
export function show(details) {
  for (const grant of details.classes) {
    const section = document.querySelector(`details.advanced[data-class="${CSS.escape(grant.class)}"]`);
    if (!section) continue;
    for (const form of formsIn(section)) {
      const own = JSON.stringify(grant[form.dataset.kind]?.[form.dataset.resource] ?? {});
      if (isTyped(form)) form.dataset.missed = own;
      else take(form, own);
    }
    summarise(section);
  }
}

async function set(form) {
  const { class: name, kind, resource } = form.dataset;
  const where = path("domains", domain, "classes", name, kind, resource);
  const before = ownOf(form);
  const grant = await call("PUT", where, read(form));
  // As sluiced has read it.
  const after = grant[kind][resource] ?? {};
  delete form.dataset.missed;
  form.dataset.own = JSON.stringify(after);
  fill(form);
  summarise(form.closest("details"));
  const title = form.closest(".knobs-column").querySelector("legend").textContent.toLowerCase();
  changed(`${name}, ${title}: ${words(kind, after) || "as by default"}.`, () => call("PUT", where, before));
  announce();
}

// After the lanes were drawn, or drawn anew.
export function prepare() {
  for (const section of document.querySelectorAll("details.advanced")) {
    for (const form of formsIn(section)) fill(form);
    summarise(section);
  }
}

export function start() {
  prepare();
  if (!mayChange()) return;
  document.addEventListener("submit", (event) => {
    const form = event.target.closest?.("form.knobs");
    if (!form) return;
    event.preventDefault();
    attempt(form, () => set(form));
  });
  document.addEventListener("focusout", (event) => {
    const form = event.target.closest?.("form.knobs");
    if (!form || form.dataset.missed === undefined || form.contains(event.relatedTarget) || isTyped(form)) return;
    take(form, form.dataset.missed);
    summarise(form.closest("details"));
  });
  document.addEventListener("input", (event) => {
    const form = event.target.closest?.("form.knobs");
    if (form) adapt(form);
  });
}
