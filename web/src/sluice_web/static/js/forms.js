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

// All that a PUT of a grant says: what it was, to put it back.
export function grantBody(grant) {
  const { limits = {}, dscp = [], scheduling = {}, queues = {} } = grant ?? {};
  return { limits, dscp, scheduling, queues };
}
