// SPDX-License-Identifier: GPL-2.0-or-later
// Asks before something goes that is in use. The question is the server's, which asks it on
// a page of its own where no script runs.

import { page } from "./api.js";
import { element } from "./dom.js";
import { successor } from "./refresh.js";

let asking = false;

// `form` leads to the page that asks. True if the thing that goes is unused, or the person agrees.
export async function agreed(form) {
  if (asking) return false;
  asking = true;
  const opener = document.activeElement;
  try {
    const question = (await page(form.action)).getElementById("question");
    return question.dataset.inUse === "no" || await answer(question, opener);
  } finally {
    asking = false;
  }
}

// Escape keeps the thing, and so does a key that is pressed without reading.
function answer(question, opener) {
  const yes = element("button", { type: "button", class: "danger", "data-testid": "ask-yes" }, question.dataset.verb);
  const no = element("button", { type: "button", "data-testid": "ask-no" }, "Keep it");
  const dialog = element("dialog", {
    class: "dialog", role: "alertdialog", "aria-labelledby": "ask-title", "aria-describedby": "ask-says", "data-testid": "ask",
  }, question, element("div", { class: "row" }, yes, no));
  yes.addEventListener("click", () => dialog.close("yes"));
  no.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  no.focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    // The button that opened it has the focus again, unless it was drawn anew meanwhile. After
    // a yes it goes.
    if (dialog.returnValue === "yes") focusPage();
    else if (opener && !opener.isConnected) successor(opener)?.focus();
    dialog.remove();
    resolve(dialog.returnValue === "yes");
  }, { once: true }));
}

function focusPage() {
  const main = document.getElementById("main");
  main.tabIndex = -1;
  main.focus({ preventScroll: true });
}
