// SPDX-License-Identifier: GPL-2.0-or-later
// Parts of the page are drawn anew by taking them from the page as the server words it now.

import { page } from "./api.js";
import { clock } from "./format.js";

export function localTimes() {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const local = clock(Number(time.dataset.at), !time.closest(".headline, .minutes"));
    if (time.textContent !== local) time.textContent = local;
  }
}

// Names, in the parts around a control, of the thing that it is about.
const ABOUT = ["group", "domain", "card", "class", "resource", "kind"];
const about = (control) => ABOUT.map((name) => control.parentElement?.closest(`[data-${name}]`)?.dataset[name]);

// The control that has taken this one's place, when its part was drawn anew: it has the id of
// this one, or its data attributes and is about the same thing. Null if there is none.
export function successor(control) {
  if (control.id) return document.getElementById(control.id);
  const data = [...control.attributes].filter((one) => one.name.startsWith("data-"));
  if (!data.length) return null;
  const alike = document.querySelectorAll(control.localName + data.map((one) => `[${one.name}="${CSS.escape(one.value)}"]`).join(""));
  const named = about(control);
  // The part that was taken out has lost what is around it.
  return [...alike].find((one) => about(one).every((name, i) => [undefined, name].includes(named[i]))) ?? null;
}

// False if the page cannot be read now; the banner says why.
export async function refresh(...selectors) {
  let fresh;
  try {
    fresh = await page(location.href);
  } catch {
    return false;
  }
  const focused = document.activeElement;
  for (const selector of selectors) {
    const part = fresh.querySelector(selector);
    if (part) document.querySelector(selector)?.replaceWith(part);
  }
  if (focused && !focused.isConnected) successor(focused)?.focus();
  localTimes();
  return true;
}
