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

// False if the page cannot be read now; the banner says why.
export async function refresh(...selectors) {
  let fresh;
  try {
    fresh = await page(location.href);
  } catch {
    return false;
  }
  const focused = document.activeElement?.id;
  for (const selector of selectors) {
    const part = fresh.querySelector(selector);
    if (part) document.querySelector(selector)?.replaceWith(part);
  }
  // A field is found again by its id.
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  localTimes();
  return true;
}
