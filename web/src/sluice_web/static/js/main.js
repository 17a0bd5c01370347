// SPDX-License-Identifier: GPL-2.0-or-later
// On every page: the live connection, local times, htmx's CSRF header.

import { clock } from "./format.js";
import { failed } from "./changes.js";
import { connect } from "./live.js";

export function localTimes(root = document) {
  for (const time of root.querySelectorAll("time[data-at]")) {
    const local = clock(Number(time.dataset.at), !time.closest(".headline, .minutes"));
    if (time.textContent !== local) time.textContent = local;
  }
}

document.body.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-CSRF-Token"] = document.querySelector("meta[name=csrf-token]").content;
});
document.body.addEventListener("htmx:afterSettle", (event) => localTimes(event.target));
document.body.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) location.reload();
  let detail = "This part of the page could not be read; reload the page.";
  try {
    detail = JSON.parse(event.detail.xhr.responseText).detail ?? detail;
  } catch { /* not problem+json: the general sentence stands */ }
  failed(new Error(detail));
});
localTimes();
// A page may stay open over midnight: a time of yesterday gets its date then.
setInterval(localTimes, 60_000);
connect();
