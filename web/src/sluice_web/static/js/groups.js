// SPDX-License-Identifier: GPL-2.0-or-later
// Groups: their members, rates, and use now.

import { call, path } from "./api.js";
import { announce, changed } from "./changes.js";
import { setText } from "./dom.js";
import { rate, significant } from "./format.js";
import { act, attempt } from "./forms.js";
import { fill, read } from "./knobs.js";
import { on } from "./live.js";
import { refresh } from "./refresh.js";

// A second is short beside a burst: the shown rate is smoothed over about three.
const SMOOTH_MS = 3000;

const sectionOf = (name) => document.querySelector(`[data-group="${CSS.escape(name)}"]`);
const text = (unit, value) => (unit === "bytes" ? rate(value) : `${significant(value)} ops/s`);

// The counts of each QEMU process for a group become units per second of each VM.
const meters = new Map();

function metered(group, now) {
  const sums = new Map();
  for (const member of group.members) {
    const key = `${group.name} ${member.pid} ${member.label}`;
    const before = meters.get(key);
    const meter = { units: member.units, at: now, rate: before?.rate ?? 0 };
    if (before && now > before.at && member.units >= before.units) {
      const share = Math.min(1, (now - before.at) / SMOOTH_MS);
      meter.rate += ((member.units - before.units) * 1000 / (now - before.at) - meter.rate) * share;
    }
    meters.set(key, meter);
    // A label is the VM's name, the shaper's and the resource; only the first may have spaces.
    const domain = member.label.split(" ").slice(0, -2).join(" ");
    const sum = sums.get(domain) ?? { rate: 0, waiting: false, known: false };
    sums.set(domain, { rate: sum.rate + meter.rate, waiting: sum.waiting || member.waiting, known: sum.known || Boolean(before) });
  }
  for (const [key, meter] of meters) if (now - meter.at > 10 * SMOOTH_MS) meters.delete(key);
  return sums;
}

function showRow(row, group, sum) {
  setText(row.querySelector("[data-field=rate]"), sum.known ? text(group.unit, sum.rate) : "–");
  row.querySelector(".bar").style.setProperty("--now", Math.min(1, sum.rate / group.rate_per_second));
}

function update(groups) {
  const now = performance.now();
  for (const group of groups) {
    const section = sectionOf(group.name);
    const sums = metered(group, now);
    const all = { rate: 0, known: false };
    for (const row of section?.querySelectorAll("tbody [data-domain]") ?? []) {
      const sum = sums.get(row.dataset.domain) ?? { rate: 0, waiting: false, known: false };
      showRow(row, group, sum);
      setText(row.querySelector("[data-field=state]"), !sums.has(row.dataset.domain) ? "inactive" : sum.waiting ? "waits" : "");
      all.rate += sum.rate;
      all.known ||= sum.known;
    }
    const total = section?.querySelector("[data-field=total]");
    if (total) showRow(total, group, all);
  }
  const said = saidOf(groups);
  if (said !== shown() && said !== news) announce();
  news = said;
}

// Groups and members by the newest figures; the page is drawn anew once for each change.
let news = "";

const saidOf = (groups) => groups
  .map((group) => [group.name, group.rate_per_second, group.burst, ...group.domains.flatMap((one) => [one.domain, one.weight])].join())
  .sort().join(";");

const shown = () => [...document.querySelectorAll("[data-group]")]
  .map(({ dataset, children }) => [dataset.group, dataset.rate, dataset.burst,
    ...[...children].flatMap((child) => [...child.querySelectorAll("tbody [data-domain]")]).flatMap((row) => [row.dataset.domain, row.dataset.weight])].join())
  .sort().join(";");

document.body.addEventListener("sluice-changed", () => refresh("#groups"));
on("groups", (groups) => Array.isArray(groups) && update(groups));

// As a request says it.
const bodyOf = ({ resource, unit, rate, burst }) =>
  ({ resource, [`${unit}_per_second`]: Number(rate), [`burst_${unit}`]: Number(burst) });

async function setGroup({ name }) {
  const where = path("groups", name);
  const found = (await call("GET", "/groups")).find((one) => one.name === name);
  const before = found && bodyOf({ ...found, rate: found.rate_per_second });
  await call("PUT", where, read(form, offered, before ?? offered));
  changed(found ? `Group ${name} is changed.` : `Group ${name} is made.`, () => (found ? call("PUT", where, before) : call("DELETE", where)));
  announce();
  return true;
}

function join(name, domain, weight, undo, said) {
  return act(async () => {
    await call("PUT", path("groups", name, "members", domain), weight === undefined ? {} : { weight });
    changed(said, undo);
  });
}

const form = document.getElementById("group-form");
// The group that the form was filled with.
let offered = {};
const ACTIONS = {
  "change-group": ({ dataset }) => {
    form.elements.name.value = dataset.group;
    offered = bodyOf(dataset);
    fill(form, offered);
    form.scrollIntoView({ block: "center" });
    form.elements[`${dataset.unit}_per_second`].select();
  },
  "remove-group": ({ dataset }) => act(async () => {
    const where = path("groups", dataset.group);
    await call("DELETE", where);
    changed(`Group ${dataset.group} is removed.`, () => call("PUT", where, bodyOf(dataset)));
  }),
  leave: ({ dataset }, { dataset: { domain, weight } }) => act(async () => {
    const where = path("groups", dataset.group, "members", domain);
    await call("DELETE", where);
    changed(`${domain} is out of ${dataset.group}.`, () => call("PUT", where, { weight: Number(weight) }));
  }),
};

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-action]");
  if (button) ACTIONS[button.dataset.action]?.(button.closest("[data-group]"), button.closest("[data-domain]"));
});
document.addEventListener("change", (event) => {
  const field = event.target.closest?.("[data-action=join], [data-action=weigh]");
  const name = field?.closest("[data-group]")?.dataset.group;
  if (!name || !field.value) return;
  if (field.dataset.action === "join") {
    const where = path("groups", name, "members", field.value);
    join(name, field.value, undefined, () => call("DELETE", where), `${field.value} is in ${name}.`);
    return;
  }
  const { domain, weight } = field.closest("[data-domain]").dataset;
  const where = path("groups", name, "members", domain);
  join(name, domain, Number(field.value), () => call("PUT", where, { weight: Number(weight) }), `${domain} has weight ${field.value} in ${name}.`);
});
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!(await attempt(form, setGroup))) return;
  form.reset();
  offered = {};
});
