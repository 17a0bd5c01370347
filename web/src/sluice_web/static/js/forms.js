// SPDX-License-Identifier: GPL-2.0-or-later
// Changes that pages have in common; a form shows its refusal beside its button.

import { call, path } from "./api.js";
import { agreed } from "./ask.js";
import { announce, changed, failed } from "./changes.js";

export function showError(line, problem) {
  line.textContent = problem?.message ?? "";
  line.hidden = !problem;
}

export async function attempt(form, action) {
  const line = form.querySelector(".error");
  showError(line, null);
  try {
    return await action(Object.fromEntries(new FormData(form)));
  } catch (problem) {
    showError(line, problem);
    const name = problem.body?.thing?.split(".").at(-1);
    form.elements[name]?.focus?.();
    return undefined;
  }
}

const counted = (list, word) => list.length && `${list.length} ${word}${list.length === 1 ? "" : "s"}`;

// Takes a class from a VM, with an undo. False if somebody was asked and keeps it.
export async function takeAway(domain, name, form) {
  if (!(await agreed(form))) return false;
  const where = path("domains", domain, "classes", name);
  const { revoked, rules = [], assignments = [] } = await call("DELETE", where);
  const { limits = {}, dscp = [], scheduling = {}, queues = {} } = revoked ?? {};
  const gone = [counted(rules, "rule"), counted(assignments, "assignment")].filter(Boolean);
  changed(`${name} is taken from ${domain}${gone.length ? `, with ${gone.join(" and ")}` : ""}.`, async () => {
    await call("PUT", where, { limits, dscp, scheduling, queues });
    for (const rule of rules) await call("POST", "/rules", ruleBody(rule));
    for (const one of assignments) {
      await call("PUT", path("domains", domain, "assignments", one.pid), { class: name, start_time_ticks: one.start_time_ticks });
    }
  });
  return true;
}

// Gives a class to a VM, with an undo.
export async function give(domain, name) {
  const where = path("domains", domain, "classes", name);
  await call("PUT", where, { limits: {} });
  changed(`${domain} has the class ${name} now.`, () => call("DELETE", where));
}

// Of a rule, as a request says it.
export const ruleBody = ({ domain, class: name, match }) => ({ domain, class: name, match });

// Does something, shows a refusal, and has the page drawn anew unless nothing was done.
export async function act(action) {
  try {
    if (await action() === false) return;
  } catch (problem) {
    failed(problem);
  }
  announce();
}
