// SPDX-License-Identifier: GPL-2.0-or-later
// Classes, the VMs that have them, and rules.

import { call, path } from "./api.js";
import { agreed } from "./ask.js";
import { announce, changed } from "./changes.js";
import { act, attempt, give, takeAway } from "./forms.js";
import { fill, read } from "./knobs.js";
import { refresh } from "./refresh.js";

const RULE_HELP = "The first rule that matches a process wins; its children go with it.";

// The form is filled with the values of the named class; a field that is left alone keeps
// the value that the class has by then.
const classForm = document.getElementById("class-form");
let offered = {};

function offer(values) {
  fill(classForm, values, offered);
  offered = values;
}

function empty() {
  classForm.reset();
  offered = {};
  fill(classForm, offered);
}

async function makeClass({ name }) {
  const where = path("classes", name);
  const before = (await call("GET", "/classes")).find((one) => one.name === name);
  const body = read(classForm, offered, before ?? offered);
  await call("PUT", where, body);
  changed(before ? `Class ${name} is changed.` : `Class ${name} is made.`, () => (before
    ? call("PUT", where, Object.fromEntries(Object.keys(body).map((key) => [key, before[key]])))
    : call("DELETE", where)));
  announce();
  return true;
}

const ruleOf = (fields) => ({ domain: fields.domain || null, class: fields.class, match: { [fields.key]: fields.value } });

const untaken = ({ refused }) => refused.map((one) => `Not in force in ${one.domain}: ${one.why}.`);

async function addRule(fields) {
  const rule = await call("POST", "/rules", ruleOf(fields));
  changed([`Rule ${rule.id} is added.`, ...untaken(rule)].join(" "), () => call("DELETE", path("rules", rule.id)));
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
      const answer = await call("POST", "/rules/preview", ruleOf(fields));
      const { processes } = answer;
      // Answers may come in another order than they were asked for.
      if (mine !== previews) return;
      const names = processes.slice(0, 12).map((one) => `${one.comm} ${one.pid} on ${one.domain}`).join(", ");
      const matched = processes.length ? `Now it matches ${processes.length}: ${names}${processes.length > 12 ? ", …" : "."}` : "Now it matches no process.";
      shown.textContent = [matched, ...untaken(answer)].join(" ");
    } catch (problem) {
      if (mine === previews) shown.textContent = problem.message;
    }
  }, 300);
}

// The members of a class, from the table.
function valuesOf(name) {
  const button = document.querySelector(`button[data-action=change-class][data-class="${CSS.escape(name)}"]`);
  return button ? JSON.parse(button.dataset.body) : {};
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
  revoke: ({ domain, class: name }, form) => takeAway(domain, name, form),
};

document.body.addEventListener("sluice-changed", () => refresh("#classes"));
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
  act(() => give(select.value, select.dataset.class));
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
ruleForm?.addEventListener("input", () => {
  ruleForm.elements.value.placeholder = ruleForm.elements.key.selectedOptions[0].dataset.example;
  previewRule(ruleForm);
});
if (classForm) empty();

function addClassToRules(name) {
  const select = ruleForm.elements.class;
  if (![...select.options].some((option) => option.value === name)) select.add(new Option(name, name));
}
