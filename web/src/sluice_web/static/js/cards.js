// SPDX-License-Identifier: GPL-2.0-or-later
// The setting of a network card: which frames' DSCP counts. A choice is in force at once.

import { call, path } from "./api.js";
import { changed } from "./changes.js";
import { mayChange } from "./dom.js";
import { act } from "./forms.js";
import { fill, read, words } from "./knobs.js";

const domain = document.body.dataset.domain;
const forms = () => document.querySelectorAll("#devices form.card");
const ownOf = (form) => JSON.parse(form.dataset.own);

// After the list of devices was drawn, or drawn anew.
export function prepare() {
  for (const form of forms()) fill(form, ownOf(form));
}

async function set(form) {
  const where = path("domains", domain, "cards", form.dataset.card);
  const before = ownOf(form), after = read(form, before);
  try {
    await call("PUT", where, after);
  } catch (problem) {
    fill(form, before);
    throw problem;
  }
  form.dataset.own = JSON.stringify(after);
  changed(`${form.dataset.target}: ${words(form, after) || "as by default"}.`, () => call("PUT", where, before));
}

export function start() {
  prepare();
  if (!mayChange()) return;
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("form.card");
    if (form) act(() => set(form));
  });
}
