// SPDX-License-Identifier: GPL-2.0-or-later
// A change has ten seconds to be undone: by a toast with a button, or by the key `u`.

import { element } from "./dom.js";

const UNDO_MS = 10_000;
const pending = [];

export function changed(text, undo) {
  const toast = element("div", { class: "toast", "data-testid": "toast" }, element("span", {}, text));
  const entry = { toast, undo };
  if (undo) {
    toast.append(element("button", { type: "button", "data-testid": "undo", on: { click: () => revert(entry) } }, "Undo (u)"));
    pending.push(entry);
  }
  show(toast, () => pending.includes(entry) && pending.splice(pending.indexOf(entry), 1));
}

export function failed(problem) {
  const toast = element("div", { class: "toast failed", role: "alert", "data-testid": "toast-failed" }, element("span", {}, problem.message));
  toast.append(element("button", { type: "button", on: { click: () => toast.remove() } }, "Close"));
  show(toast);
}

function show(toast, atEnd) {
  document.getElementById("toasts").append(toast);
  setTimeout(() => {
    atEnd?.();
    toast.remove();
  }, UNDO_MS);
}

async function revert(entry) {
  if (!pending.includes(entry)) return;
  pending.splice(pending.indexOf(entry), 1);
  entry.toast.remove();
  try {
    await entry.undo();
    changed("Undone.");
  } catch (problem) {
    failed(problem);
  }
  announce();
}

// Tells the page's parts that something changed, so that they ask again.
export function announce() {
  document.body.dispatchEvent(new CustomEvent("sluice-changed"));
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=radio], [type=checkbox]), textarea, select");
  if (event.key === "u" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing && pending.length) {
    revert(pending.at(-1));
  }
});
