// SPDX-License-Identifier: GPL-2.0-or-later
// Putting a process into a class: this one once, or every one of its
// executable by a rule; and taking it out again.

import { call, path } from "./api.js";
import { announce, changed, failed } from "./changes.js";
import { act, ruleBody } from "./forms.js";
import { closeDialog, element, openDialog, RESOURCES } from "./dom.js";
import { rate } from "./format.js";
import { classNames, laneOf } from "./lanes.js";
import { last } from "./live.js";
import { bringerOf, isChosenInGuest, ruleOf } from "./tree.js";

const domain = document.body.dataset.domain;
const called = (process) => `${process.comm} (pid ${process.pid})`;
// A pid alone may be that of a process that has ended.
export const byHand = (process, report) => (report?.assignments ?? []).find((one) =>
  one.pid === process.pid && one.start_time_ticks === process.start_time_ticks);

// `chosen` is the class it was dropped on, or null to choose in the dialog.
export function openAssign(process, chosen, report) {
  const names = classNames().filter((name) => name !== "default");
  if (!names.length) {
    failed(new Error(`${domain} has no class but default; give it one above the processes, then assign ${process.comm}.`));
    return;
  }
  const select = element("select", { id: "assign-class", "data-testid": "assign-class" },
    ...names.map((name) => element("option", { value: name, selected: name === (chosen ?? process.class ?? names[0]) }, name)));
  const effect = element("p", { class: "muted" });
  const error = element("p", { class: "error", role: "alert", "data-testid": "assign-error" });
  const everywhere = element("input", { type: "checkbox", id: "assign-everywhere" });
  const preview = element("p", { class: "preview", "data-testid": "assign-preview" });
  const once = element("button", { type: "button", class: "primary", "data-testid": "assign-once" }, "This process once");
  const always = element("button", { type: "button", "data-testid": "assign-always" }, `Always ${process.exe || "this executable"}`);
  always.disabled = !process.exe;

  const rule = () => ({ domain: everywhere.checked ? null : domain, class: select.value, match: { exe: process.exe } });
  const refresh = () => {
    effect.textContent = effectOf(process, select.value);
    if (process.exe) showPreview(preview, rule(), process);
    else preview.textContent = "The guest does not say which executable this is, so no rule can name it.";
  };
  const attempt = async (action) => {
    error.textContent = "";
    try {
      await action();
      closeDialog();
      announce();
    } catch (problem) {
      error.textContent = problem.message;
    }
  };
  select.addEventListener("change", refresh);
  everywhere.addEventListener("change", refresh);
  once.addEventListener("click", () => attempt(() => assignOnce(process, select.value, report)));
  always.addEventListener("click", () => attempt(() => addRule(rule(), process)));

  openDialog(`Put ${called(process)} into ${chosen ?? "a class"}`,
    element("label", {}, "Class ", select), effect,
    element("div", { class: "choices" },
      element("div", {}, once, element("p", { class: "muted small" }, "It and its children, until they end. Later processes are not touched.")),
      element("div", {}, always,
        element("label", { class: "check" }, everywhere, element("span", {}, "in every VM that has the class, not only this one")), preview)),
    error,
    element("div", { class: "row" }, element("button", { type: "button", on: { click: closeDialog } }, "Cancel")));
  once.focus();
  refresh();
}

function effectOf(process, name) {
  const samples = last("live")?.domains?.[domain]?.classes?.[name] ?? {};
  const limits = Object.entries(RESOURCES)
    .filter(([resource]) => samples[resource]?.limit_bytes_per_second)
    .map(([resource, title]) => `${title.toLowerCase()} ${rate(samples[resource].limit_bytes_per_second)}`);
  const rates = `${process.comm} now reads ${rate(process.read_bps)} and writes ${rate(process.write_bps)}.`;
  if (!limits.length) return `${name} has no limit: it only says which traffic this is. ${rates}`;
  return `${name} shares ${limits.join(", ")} among all its processes. ${rates}`;
}

let previews = 0;
async function showPreview(target, body, process) {
  target.textContent = "Looking what else it matches…";
  previews += 1;
  const mine = previews;
  try {
    const { processes } = await call("POST", "/rules/preview", body);
    // Answers may come in another order than they were asked for.
    if (mine !== previews) return;
    const others = processes.filter((one) => !(one.pid === process.pid && one.domain === domain));
    target.textContent = others.length === 0
      ? "A rule. Now it matches this process only."
      : `A rule. Now it also matches ${others.length} more: ${others.slice(0, 20).map((one) => `${one.comm} ${one.pid}${one.domain === domain ? "" : ` on ${one.domain}`}`).join(", ")}${others.length > 20 ? ", …" : "."}`;
  } catch (problem) {
    if (mine === previews) target.textContent = problem.message;
  }
}

async function assignOnce(process, name, report) {
  const where = path("domains", domain, "assignments", process.pid);
  const before = byHand(process, report);
  await call("PUT", where, { class: name, start_time_ticks: process.start_time_ticks });
  changed(`${called(process)} is in ${name} until it ends.`, () => (before
    ? call("PUT", where, { class: before.class, start_time_ticks: before.start_time_ticks })
    : call("DELETE", where)));
}

async function addRule(body, process) {
  const rule = await call("POST", "/rules", body);
  changed(`${process.exe} always goes into ${body.class}.`, () => call("DELETE", path("rules", rule.id)));
}

// An assignment by hand is simply removed; a rule is shown first, since it may
// hold other processes too; a child leads to the parent that brought it.
export async function unassign(process, report) {
  const bringer = bringerOf(process, report.processes, (one) => byHand(one, report));
  const hand = byHand(bringer, report);
  if (hand) return removeAssignment(bringer, hand);
  if (isChosenInGuest(bringer)) {
    return failed(new Error(`Root of ${domain} has put ${called(bringer)} into ${bringer.class} (sluice-agent shape). Put it into another class here, which goes before that, or withdraw the class.`));
  }
  let rule = null;
  try {
    rule = (await call("GET", "/rules")).find((one) => String(one.id) === ruleOf(bringer));
  } catch (problem) {
    return failed(problem);
  }
  if (!rule) {
    return failed(new Error(`${called(bringer)} is in no class by hand or by a rule; there is nothing to undo.`));
  }
  return offerRuleRemoval(bringer, rule);
}

function removeAssignment(process, hand) {
  const where = path("domains", domain, "assignments", process.pid);
  return act(async () => {
    await call("DELETE", where);
    changed(`${called(process)} is no longer in ${hand.class}.`,
      () => call("PUT", where, { class: hand.class, start_time_ticks: hand.start_time_ticks }));
  });
}

function offerRuleRemoval(process, rule) {
  const match = Object.entries(rule.match).map(([key, value]) => `${key} ${value}`).join(" and ");
  const where = rule.domain === null ? "every VM" : rule.domain;
  const error = element("p", { class: "error", role: "alert" });
  const remove = element("button", { type: "button", class: "danger", "data-testid": "remove-rule" }, `Remove the rule ${rule.id}`);
  remove.addEventListener("click", async () => {
    try {
      await call("DELETE", path("rules", rule.id));
      changed(`Rule ${rule.id} is removed.`, () => call("POST", "/rules", ruleBody(rule)));
      closeDialog();
      announce();
    } catch (problem) {
      error.textContent = problem.message;
    }
  });
  const colour = laneOf(rule.class)?.dataset.colour ?? 0;
  openDialog(`${called(process)} is in ${rule.class} by a rule`,
    element("p", {}, element("span", { class: `swatch c${colour}` }), `Rule ${rule.id}: ${match}, on ${where}, goes into ${rule.class}.`),
    element("p", { class: "muted" }, "Removing it lets every process it matched go back to default."), error,
    element("div", { class: "row" }, remove, element("button", { type: "button", autofocus: true, on: { click: closeDialog } }, "Keep it")));
}
