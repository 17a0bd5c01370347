// SPDX-License-Identifier: GPL-2.0-or-later
// The settings of a class beside its limits: a form for each resource and kind, sent as a
// whole.

import { call, path } from "./api.js";
import { announce, changed } from "./changes.js";
import { mayChange, setText } from "./dom.js";
import { significant } from "./format.js";
import { attempt } from "./forms.js";
import { adapt, fill, read, words } from "./knobs.js";

const domain = document.body.dataset.domain;
const sections = () => document.querySelectorAll("details.advanced[data-class]");
const formsIn = (section) => section.querySelectorAll("form.knobs");
const ownOf = (form) => JSON.parse(form.dataset.own);
const knobsOf = (event) => event.target.closest?.("form.knobs");

function summarise(section) {
  const texts = [...formsIn(section)].map((form) => [form.dataset.title, words(form, ownOf(form))]);
  const said = texts.filter(([, text]) => text).map((parts) => parts.join(" "));
  if (section.dataset.control) said.push(section.dataset.control);
  setText(section.querySelector("[data-testid=advanced-summary]"), said.join("; ") || "as by default");
}

const isTyped = (form) => form.contains(document.activeElement) && document.activeElement.type !== "submit";

// One text for equal objects: the page and the controller's answers differ in order and spaces.
const canonical = (object) =>
  JSON.stringify(object, (_, part) => (part?.constructor === Object ? Object.fromEntries(Object.entries(part).sort()) : part));

function take(form, own) {
  delete form.dataset.missed;
  if (form.dataset.own === own) return;
  form.dataset.own = own;
  fill(form, ownOf(form));
}

// Fresh values from the controller; a form that somebody is at work in gets them
// afterwards, or it would show old ones and set them again.
export function show(details) {
  for (const section of sections()) {
    const grant = details.classes.find((one) => one.class === section.dataset.class) ?? {};
    const { connections_per_second: limit, reason } = grant.overload ?? {};
    section.dataset.control = reason ? `now ${significant(limit)} new connections/s: ${reason}` : "";
    for (const form of formsIn(section)) {
      const own = canonical(grant[form.dataset.kind]?.[form.dataset.resource] ?? {});
      if (isTyped(form)) form.dataset.missed = own;
      else take(form, own);
    }
    summarise(section);
  }
}

async function set(form) {
  const { class: name, kind, resource, title } = form.dataset;
  const where = path("domains", domain, "classes", name, kind, resource);
  const before = JSON.parse(form.dataset.missed ?? form.dataset.own);
  // The form does not show all of a limit.
  const grant = await call("PUT", where, { ...before, ...read(form, ownOf(form), before) });
  // As sluiced has read it.
  const after = grant[kind][resource] ?? {};
  form.dataset.own = "";
  take(form, canonical(after));
  summarise(form.closest("details"));
  changed(`${name}, ${title}: ${words(form, after) || "as by default"}.`, () => call("PUT", where, before));
  announce();
}

// After the lanes were drawn, or drawn anew.
export function prepare() {
  for (const section of sections()) {
    for (const form of formsIn(section)) {
      form.dataset.own = canonical(ownOf(form));
      fill(form, ownOf(form));
    }
    summarise(section);
  }
}

export function start() {
  prepare();
  if (!mayChange()) return;
  document.addEventListener("submit", (event) => {
    const form = knobsOf(event);
    if (!form) return;
    event.preventDefault();
    attempt(form, () => set(form));
  });
  document.addEventListener("focusout", (event) => {
    const form = knobsOf(event);
    if (!form || form.dataset.missed === undefined || form.contains(event.relatedTarget) || isTyped(form)) return;
    take(form, form.dataset.missed);
    summarise(form.closest("details"));
  });
  document.addEventListener("input", (event) => knobsOf(event) && adapt(knobsOf(event)));
}
