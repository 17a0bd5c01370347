// SPDX-License-Identifier: GPL-2.0-or-later
// Users and tokens: asked here, done by the page's own form, whose answer may show a secret.

import { agreed } from "./ask.js";
import { failed } from "./changes.js";
import { element } from "./dom.js";

// The form leads to the page that asks; after a yes it is posted to the same address.
async function askAndPost(form) {
  try {
    if (!(await agreed(form))) return;
    const token = document.querySelector("meta[name=csrf-token]").content;
    form.append(element("input", { type: "hidden", name: "csrf_token", value: token }));
    form.method = "post";
    form.submit();
  } catch (problem) {
    failed(problem);
  }
}

for (const form of document.querySelectorAll("form[data-posts]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    askAndPost(form);
  });
}
