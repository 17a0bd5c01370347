// SPDX-License-Identifier: GPL-2.0-or-later
// The fields that forms.py takes from the controller's document: filled, read, said in short.
// `own` is the object that a form shows; a member that it lacks is as usual.

import { binarySize, count, duration, given, rate } from "./format.js";

const FORMATS = { "bytes per second": rate, bytes: binarySize, nanoseconds: duration };
const fieldsOf = (form) => [...form.elements].filter((field) => field.dataset.usual !== undefined);
const usual = (field) => JSON.parse(field.dataset.usual);

// `outer.inner` is a member of an object in the object.
function valueOf(field, own) {
  const [outer, inner] = field.name.split(".");
  if (inner) return own[outer]?.[inner] ?? null;
  return own[outer] === undefined ? usual(field) : own[outer];
}

const text = (field, value) => (value === null ? "" : (FORMATS[field.dataset.unit] ?? String)(value));

function write(field, value) {
  if (field.type === "checkbox") field.checked = value;
  else if (value !== null || field.dataset.kind !== "word") field.value = text(field, value);
}

function isAsIn(field, own) {
  const value = valueOf(field, own);
  return field.type === "checkbox" ? field.checked === value : field.value === text(field, value);
}

// Text is sent as it was typed: sluiced reads it.
const READ = {
  flag: (field) => field.checked,
  number: (field) => count(field.value),
  amount: (field) => given(field.value),
};
const typed = (field) => (READ[field.dataset.kind] ?? (({ value }) => value))(field);

// With `shown`, the fields alone that are as in that object.
export function fill(form, own, shown = null) {
  for (const field of fieldsOf(form)) if (!shown || isAsIn(field, shown)) write(field, valueOf(field, own));
  adapt(form);
}

// Hides a field that says nothing beside the present value of another.
export function adapt(form) {
  for (const field of fieldsOf(form)) {
    for (const [name, value] of Object.entries(JSON.parse(field.dataset.beside ?? "{}"))) {
      field.closest("label").hidden = form.elements[name].value !== value;
    }
  }
}

// A field that was left as in `own` keeps the value that `latest` has, with all its digits.
export function read(form, own, latest = own) {
  const body = {};
  for (const field of fieldsOf(form)) {
    const [outer, inner] = field.name.split(".");
    const isHidden = field.closest("label").hidden;
    const value = isHidden ? usual(field) : isAsIn(field, own) ? valueOf(field, latest) : typed(field);
    if (inner) (body[outer] ??= {})[inner] = value;
    else body[outer] = value;
  }
  for (const [name, value] of Object.entries(body)) {
    if (value instanceof Object && Object.values(value).every((one) => one === null)) body[name] = null;
  }
  return body;
}

// The members that are not as usual.
export function words(form, own) {
  const said = ({ dataset, type }, value) => (type === "checkbox" ? dataset.label : `${dataset.label} ${value}`);
  return fieldsOf(form)
    .filter((field) => ![null, usual(field)].includes(valueOf(field, own)))
    .map((field) => said(field, text(field, valueOf(field, own)).replaceAll("-", " ")))
    .join(", ");
}
