// SPDX-License-Identifier: GPL-2.0-or-later
// Why a class is as slow as it is: a button in its lane unfolds the answer, which stays
// fresh while it is open.

import { call, path } from "./api.js";
import { element, RESOURCES } from "./dom.js";

const domain = document.body.dataset.domain;
const FRESH_MS = 2000;
const panelOf = (button) => document.getElementById(button.getAttribute("aria-controls"));
const isOpen = (button) => button.isConnected && button.getAttribute("aria-expanded") === "true";

// Of an idle resource the reason is one for all.
const isIdle = (one) => one.reason === "nothing" && !one.requests_per_second;

function lines(answer) {
  const told = answer.resources.filter((one) => !isIdle(one));
  const idle = answer.resources.filter(isIdle).map((one) => RESOURCES[one.resource]);
  const shown = told.map((one) => [RESOURCES[one.resource], one.reason, `${one.sentence}.`]);
  if (idle.length) shown.push([idle.join(", "), "nothing", "It asks for nothing."]);
  return shown.map(([title, reason, sentence]) => element("li", { "data-reason": reason },
    element("span", { class: "muted" }, title), " ", element("b", {}, reason), " ", sentence));
}

async function fill(button) {
  const panel = panelOf(button);
  try {
    const answer = await call("GET", path("domains", domain, "classes", button.dataset.class, "why"));
    panel.replaceChildren(element("ul", {}, ...lines(answer)));
  } catch (problem) {
    panel.replaceChildren(element("p", { class: "error", role: "alert" }, problem.message));
  }
}

// One that is closed and opened again meanwhile is followed already.
const followed = new Set();

async function follow(button) {
  if (followed.has(button)) return;
  followed.add(button);
  while (isOpen(button)) {
    await fill(button);
    await new Promise((resolve) => setTimeout(resolve, FRESH_MS));
  }
  followed.delete(button);
}

export function start() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button[data-action=why]");
    if (!button) return;
    const open = !isOpen(button);
    button.setAttribute("aria-expanded", open ? "true" : "false");
    panelOf(button).hidden = !open;
    if (open) follow(button);
  });
}
