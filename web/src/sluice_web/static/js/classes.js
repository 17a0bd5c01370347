// SPDX-License-Identifier: GPL-2.0-or-later
// Classes, who has them, and rules.

import { call, path } from "./api.js";
import { agreed } from "./ask.js";
import { announce, changed, failed } from "./changes.js";
import { attempt, grantBody, takenWords } from "./forms.js";

const RULE_HELP = "The first rule that matches a process wins; its children go with it.";

async function act(action) {
  try {
    if (await action() !== false) announce();
  } catch (problem) {
    failed(problem);
  }
}

// The form as it is empty. It is filled with what the named class has; a field that
// still says so was left alone, and the class keeps what it has there by then.
const USUAL = { title: "", priority: 5, is_stream: false, weight: 100, unmanaged: false };
const classForm = document.getElementById("class-form");
let offered = USUAL;

function written() {
  const { title, priority, is_stream: stream, weight, unmanaged } = classForm.elements;
  return {
    title: title.value, priority: Number(priority.value), is_stream: stream.checked,
    weight: Number(weight.value), unmanaged: unmanaged.checked,
  };
}

function offer(values) {
  const typed = written();
  for (const [key, value] of Object.entries(values)) {
    const field = classForm.elements[key];
    if (typed[key] !== offered[key]) continue;
    if (field.type === "checkbox") field.checked = value;
    else field.value = value;
  }
  offered = values;
  if (values.weight !== USUAL.weight || values.unmanaged) classForm.querySelector("details").open = true;
}

function empty() {
  classForm.reset();
  offered = USUAL;
  classForm.querySelector("details").open = false;
}

async function makeClass({ name }) {
  const where = path("classes", name);
  const [typed, shown] = [written(), offered];
  const before = (await call("GET", "/classes")).find((one) => one.name === name);
  const kept = (key) => before && typed[key] === shown[key];
  const body = Object.fromEntries(Object.keys(typed).map((key) => [key, kept(key) ? before[key] : typed[key]]));
  body.title ||= name;
  await call("PUT", where, body);
  changed(before ? `Class ${name} is changed.` : `Class ${name} is made.`, () => (before
    ? call("PUT", where, Object.fromEntries(Object.keys(body).map((key) => [key, before[key]])))
    : call("DELETE", where)));
  announce();
  return true;
}

const ruleOf = (fields) => ({ domain: fields.domain || null, class: fields.class, match: { [fields.key]: fields.value } });

async function addRule(fields) {
  const rule = await call("POST", "/rules", ruleOf(fields));
  changed(`Rule ${rule.id} is added.`, () => call("DELETE", path("rules", rule.id)));
  announce();
  return true;
}

let previewTimer = 0;
let previews = 0;
function previewRule(form) {
  clearTimeout(previewTimer);
  previews += 1;
  const mine = previews;
  const shown = document.getElementById("rule-preview");
  const fields = Object.fromEntries(new FormData(form));
  if (!fields.value || !fields.class) {
    shown.textContent = RULE_HELP;
    return;
  }
  previewTimer = setTimeout(async () => {
    try {
      const { processes } = await call("POST", "/rules/preview", ruleOf(fields));
      // Answers may come in another order than they were asked for.
      if (mine !== previews) return;
      const names = processes.slice(0, 12).map((one) => `${one.comm} ${one.pid} on ${one.domain}`).join(", ");
      shown.textContent = processes.length ? `Now it matches ${processes.length}: ${names}${processes.length > 12 ? ", …" : "."}` : "Now it matches no process.";
    } catch (problem) {
      if (mine === previews) shown.textContent = problem.message;
    }
  }, 300);
}

// False if somebody was asked and keeps it.
async function revoke(domain, name, form) {
  if (!(await agreed(form))) return false;
  const where = path("domains", domain, "classes", name);
  const taken = await call("DELETE", where);
  changed(takenWords(domain, name, taken), async () => {
    await call("PUT", where, grantBody(taken.revoked));
    for (const rule of taken.rules ?? []) await call("POST", "/rules", { domain: rule.domain, class: rule.class, match: rule.match });
    for (const one of taken.assignments ?? []) await call("PUT", path("domains", domain, "assignments", one.pid), { class: name, start_time_ticks: one.start_time_ticks });
  });
  return true;
}

// What the table says of a class.
function valuesOf(name) {
  const button = document.querySelector(`button[data-action=change-class][data-class="${CSS.escape(name)}"]`);
  return button ? JSON.parse(button.dataset.body) : USUAL;
}

// Puts a class's present values into the form, to be changed there.
function changeClass(name) {
  empty();
  classForm.elements.name.value = name;
  offer(valuesOf(name));
  classForm.scrollIntoView({ block: "center" });
  classForm.elements.title.focus();
}

const ACTIONS = {
  "remove-class": async ({ class: name, body }) => {
    await call("DELETE", path("classes", name));
    changed(`Class ${name} is removed.`, () => call("PUT", path("classes", name), JSON.parse(body)));
  },
  "remove-rule": async ({ rule, body }, form) => {
    if (!(await agreed(form))) return false;
    await call("DELETE", path("rules", rule));
    changed(`Rule ${rule} is removed.`, () => call("POST", "/rules", JSON.parse(body)));
    return true;
  },
  revoke: ({ domain, class: name }, form) => revoke(domain, name, form),
};

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-action]");
  if (!button) return;
  event.preventDefault();
  if (button.dataset.action === "change-class") changeClass(button.dataset.class);
  else act(() => ACTIONS[button.dataset.action](button.dataset, button.form));
});
document.addEventListener("change", (event) => {
  const select = event.target.closest?.("select[data-action=grant]");
  if (!select?.value) return;
  const where = path("domains", select.value, "classes", select.dataset.class);
  act(async () => {
    await call("PUT", where, { limits: {} });
    changed(`${select.value} has the class ${select.dataset.class} now.`, () => call("DELETE", where));
  });
});
classForm?.elements.name.addEventListener("input", (event) => offer(valuesOf(event.target.value)));
classForm?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await attempt(classForm, makeClass)) {
    addClassToRules(classForm.elements.name.value);
    empty();
  }
});
const ruleForm = document.getElementById("rule-form");
ruleForm?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await attempt(ruleForm, addRule)) {
    ruleForm.elements.value.value = "";
    previewRule(ruleForm);
  }
});
ruleForm?.addEventListener("input", () => previewRule(ruleForm));

function addClassToRules(name) {
  const select = ruleForm.elements.class;
  if (![...select.options].some((option) => option.value === name)) select.add(new Option(name, name));
}
