// SPDX-License-Identifier: GPL-2.0-or-later
// The page of one VM: wires the live topics to lanes, charts and processes.

import * as advanced from "./advanced.js";
import { call, path } from "./api.js";
import { announce, changed, failed } from "./changes.js";
import * as cards from "./cards.js";
import * as charts from "./charts.js";
import { closeDialog, element, isInDialog, openDialog, setText } from "./dom.js";
import * as lanes from "./lanes.js";
import { last, on } from "./live.js";
import * as processes from "./processes.js";
import { localTimes, refresh } from "./refresh.js";
import * as why from "./why.js";

const domain = document.body.dataset.domain;
let described = null;

function showDomain(details) {
  if (details.problem) {
    // The banner tells of the rest.
    if (details.problem.status === 404) showGone(details.problem.detail);
    return;
  }
  const grants = [...details.classes].map((grant) => grant.class).sort().join(" ");
  const shown = document.getElementById("lanes").dataset.grants.split(" ").sort().join(" ");
  if (grants !== shown) refreshLanes(details);
  else {
    lanes.showLimits(details);
    advanced.show(details);
  }
  setText(document.getElementById("vm-state"), details.state);
  const facts = [details.state, details.attached, details.active, details.needs_restart, details.agent?.connected, JSON.stringify([details.devices, details.cards]), details.channel?.sentence].join();
  if (described !== null && described !== facts) refreshNote();
  described = facts;
}

function showGone(detail) {
  setText(document.getElementById("vm-state"), "not there");
  const note = document.getElementById("vm-note");
  setText(note, detail);
  note.hidden = false;
  described = "not there";
}

async function refreshLanes(details) {
  if (!(await refresh("#lanes"))) return;
  advanced.prepare();
  // The server draws neither auto-shaping's limits nor reservations.
  lanes.showLimits(details);
  const live = last("live");
  if (live && !live.problem) lanes.showLive(live);
  const report = last("processes");
  if (report) processes.show(report);
}

// The note and the buttons depend on the state in ways the server words.
async function refreshNote() {
  if (await refresh("#vm-note", ".vm-head", "#devices", "#vm-channel")) cards.prepare();
}

function openAttach(action) {
  const isAttach = action === "attach";
  const restart = element("input", { type: "checkbox", "data-testid": "attach-restart" });
  const seconds = element("input", { type: "number", min: "1", max: "900", step: "1", value: "90", disabled: true, id: "shutdown-seconds", "data-testid": "attach-seconds" });
  restart.addEventListener("change", () => { seconds.disabled = !restart.checked; });
  const vhost = element("input", { type: "checkbox" });
  const error = element("p", { class: "error", role: "alert", "data-testid": "attach-error" });
  const submit = element("button", { type: "button", class: "primary", "data-testid": "attach-submit" }, isAttach ? "Attach" : "Detach");
  submit.addEventListener("click", async () => {
    error.textContent = "";
    if (restart.checked && !seconds.checkValidity()) {
      error.textContent = "Give 1 to 900 whole seconds for the VM to shut down.";
      seconds.focus();
      return;
    }
    submit.disabled = true;
    const power = restart.checked ? { restart: true, shutdown_seconds: seconds.valueAsNumber } : { restart: false };
    const body = { ...power, ...(isAttach ? { disable_vhost: vhost.checked } : {}) };
    try {
      await call("POST", path("domains", domain, action), body);
      // A restart takes long: the dialog may be closed by now, or be another one.
      if (isInDialog(error)) closeDialog();
      const back = isAttach ? "detach" : "attach";
      changed(`${domain} is ${isAttach ? "attached" : "detached"}.`, () => call("POST", path("domains", domain, back), power));
      announce();
      refreshNote();
    } catch (problem) {
      if (isInDialog(error)) error.textContent = problem.message;
      else failed(problem);
    }
    submit.disabled = false;
  });
  const says = isAttach
    ? "Its definition gets Sluice's emulator, a shaper for its disks and network cards, and a port for the agent. Nothing is limited until you say so. Detach gives the former definition back."
    : "Its definition becomes again what it was before. Classes and limits are kept for the next time.";
  openDialog(`${isAttach ? "Attach" : "Detach"} ${domain}`, element("p", {}, says),
    element("label", { class: "check" }, restart, element("span", {}, "Shut the VM down and start it now; otherwise it takes effect at its next start")),
    element("div", { class: "row" }, element("label", { for: "shutdown-seconds" }, "It may take this many seconds to shut down"), seconds),
    isAttach ? element("label", { class: "check" }, vhost, element("span", {}, "Switch vhost off where a network card uses it: with vhost, packets would go past the shaper")) : null,
    error, element("div", { class: "row" }, submit, element("button", { type: "button", on: { click: closeDialog } }, "Cancel")));
}

document.addEventListener("click", (event) => {
  const action = event.target.closest?.("button[data-action]")?.dataset.action;
  if (action === "attach" || action === "detach") openAttach(action);
});
document.body.addEventListener("sluice-changed", async () => {
  try {
    showDomain(await call("GET", path("domains", domain)));
  } catch { /* the banner says so */ }
});
function showPageError(error) {
  const line = document.getElementById("page-error");
  setText(line, error ? `No figures of this VM: ${error}. Its limits stay in force; if this lasts, see if its QEMU is stuck.` : "");
  line.hidden = !error;
}

// Streams, as the guest tells of them: another list is worded by the server, its figures here.
function showTold(told) {
  if (told.problem) return;
  const rows = [...document.querySelectorAll("#told li")];
  const key = (one) => JSON.stringify([one.class, one.name, one.source, one.stream]);
  if (told.length !== rows.length || told.some((one, i) => JSON.stringify(JSON.parse(rows[i].dataset.told)) !== key(one))) {
    refresh("#told");
    return;
  }
  told.forEach((one, i) => {
    setText(rows[i].querySelector("[data-field=said]"), `${one.verdict}, ${one.reason}`);
    rows[i].querySelector("time").dataset.at = one.at;
  });
  localTimes();
}

on("live", (live) => {
  if (live.problem) return;
  showPageError(live.domains?.[domain]?.error);
  lanes.showLive(live);
  charts.add(live);
});
on("domain", showDomain);
on("processes", processes.show);
on("told", showTold);
lanes.start();
advanced.start();
cards.start();
processes.start();
charts.start();
why.start();
