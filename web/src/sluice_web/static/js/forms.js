// SPDX-License-Identifier: GPL-2.0-or-later
// Forms that call the API and show an error beside the button.

export async function attempt(form, action) {
  const line = form.querySelector(".error");
  line.hidden = true;
  try {
    return await action(Object.fromEntries(new FormData(form)));
  } catch (problem) {
    line.textContent = problem.message;
    line.hidden = false;
    const name = problem.body?.thing?.split(".").at(-1);
    form.elements[name]?.focus?.();
    return undefined;
  }
}

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

// What went with a class that was taken from a VM.
export function takenWords(domain, name, { rules = [], assignments = [] }) {
  const gone = [rules.length && count(rules.length, "rule"), assignments.length && count(assignments.length, "assignment")].filter(Boolean);
  return `${name} is taken from ${domain}${gone.length ? `, with ${gone.join(" and ")}` : ""}.`;
}

// All that a PUT of a grant says: what it was, to put it back.
export function grantBody(grant) {
  const { limits = {}, dscp = [], scheduling = {}, queues = {} } = grant ?? {};
  return { limits, dscp, scheduling, queues };
}
