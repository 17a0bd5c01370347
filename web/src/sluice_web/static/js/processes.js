// SPDX-License-Identifier: GPL-2.0-or-later
// The guest's processes, grouped by class. Rows are kept and updated in place;
// the order changes only while neither pointer nor focus is in the table.

import { byHand, openAssign, unassign } from "./assign.js";
import { element, mayChange, setText } from "./dom.js";
import { age, percent, rate, size } from "./format.js";
import { classNames, laneOf } from "./lanes.js";
import { activity, classOf, groups, isChosenInGuest, ruleOf } from "./tree.js";

const REORDER_MS = 5000;
const table = document.getElementById("processes");
const filter = document.getElementById("process-filter");
const rows = new Map();
let report = null;
let dragged = null;
let selected = null;
let orderedAt = -Infinity;
let shape = "";

const keyOf = (process) => `${process.pid}/${process.start_time_ticks}`;

export function show(data) {
  const empty = document.getElementById("processes-empty");
  if (data.problem) {
    table.hidden = true;
    empty.hidden = false;
    setText(empty, data.problem.detail);
    setText(document.getElementById("processes-note"), "");
    return;
  }
  report = data;
  const none = data.processes.length === 0;
  table.hidden = none;
  empty.hidden = !none;
  setText(empty, "The guest's agent is connected and reports no process yet.");
  const notes = [`${data.processes.length} processes`];
  if (data.age_seconds > 5) notes.push(`reported ${age(data.age_seconds)} ago`);
  if (data.truncated) notes.push("the least busy are left out");
  setText(document.getElementById("processes-note"), notes.join(" · "));
  render();
}

function render() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = report.processes.filter((process) => matchesFilter(process, words));
  const ordered = groups(shown, classNames());
  const nextShape = shown.map((process) => `${keyOf(process)} ${classOf(process)}`).sort().join() + classNames();
  const calm = !dragged && !table.matches(":hover") && !table.contains(document.activeElement);
  const due = calm && performance.now() - orderedAt > REORDER_MS;
  if (nextShape !== shape || due) {
    if (dragged) return;
    place(ordered);
    shape = nextShape;
    orderedAt = performance.now();
  }
  for (const process of shown) update(rows.get(keyOf(process)), process);
  for (const group of ordered) updateHead(group);
}

function matchesFilter(process, words) {
  const text = `${process.pid} ${process.comm} ${process.cmdline} ${process.user} ${process.unit ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function place(ordered) {
  const kept = new Set();
  const focused = document.activeElement?.closest?.(".process-row");
  for (const group of ordered) {
    const body = bodyOf(group.name);
    const wanted = [body.firstElementChild];
    for (const { process, depth } of group.rows) {
      const key = keyOf(process);
      if (!rows.has(key)) rows.set(key, makeRow(process));
      const row = rows.get(key);
      row.querySelector(".command").style.setProperty("--depth", Math.min(depth, 8));
      setText(row.querySelector(".twig"), depth > 0 ? "└ " : "");
      kept.add(key);
      wanted.push(row);
    }
    wanted.forEach((row, index) => {
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    });
    while (body.children.length > wanted.length) body.lastElementChild.remove();
  }
  for (const body of [...table.tBodies]) if (!classNames().includes(body.dataset.class)) body.remove();
  for (const [key, row] of rows) {
    if (kept.has(key)) continue;
    row.remove();
    rows.delete(key);
  }
  focused?.isConnected && focused.focus({ preventScroll: true });
  if (!selected?.isConnected) select(table.querySelector(".process-row"), false);
}

function bodyOf(name) {
  let body = [...table.tBodies].find((each) => each.dataset.class === name);
  if (!body) {
    const colour = laneOf(name)?.dataset.colour ?? 0;
    body = element("tbody", { class: `group c${colour}`, "data-class": name, "data-testid": "process-group" },
      element("tr", { class: "group-head" },
        element("th", { scope: "rowgroup", colspan: 3 },
          element("span", { class: "swatch", "aria-hidden": "true" }), element("b", {}, name), " ",
          element("span", { class: "muted small count" })),
        element("td", { class: "num" }), element("td", { class: "num" }), element("td", { class: "num" }),
        element("td", { colspan: 3 })));
    const after = classNames().slice(classNames().indexOf(name) + 1);
    const next = [...table.tBodies].find((each) => after.includes(each.dataset.class));
    table.insertBefore(body, next ?? null);
  }
  return body;
}

function updateHead(group) {
  const body = bodyOf(group.name);
  const [cpu, read, write] = body.firstElementChild.querySelectorAll("td.num");
  const count = group.rows.length;
  setText(body.querySelector(".count"), count === 0 ? "no process; drop one here" : count === 1 ? "1 process" : `${count} processes`);
  setText(cpu, count ? percent(group.cpu_ratio) : "");
  setText(read, count ? rate(group.read_bps) : "");
  setText(write, count ? rate(group.write_bps) : "");
}

function makeRow(process) {
  const row = element("tr", {
    class: "process-row", "data-testid": "process-row", "data-pid": process.pid,
    "data-comm": process.comm, tabindex: -1, draggable: mayChange() ? "true" : false,
  },
  element("td", { class: "num" }, String(process.pid)),
  element("td", { class: "command" }, element("span", { class: "twig", "aria-hidden": "true" }), element("span", { class: "line" })),
  element("td", {}), element("td", { class: "num" }), element("td", { class: "num" }), element("td", { class: "num" }),
  element("td", { class: "num" }), element("td", { class: "muted" }), element("td", { class: "actions" }));
  if (mayChange()) {
    row.querySelector(".actions").append(
      element("button", { type: "button", class: "quiet unassign", "data-testid": "unassign", "data-pid": process.pid, tabindex: -1 }, "Unassign"),
      element("button", { type: "button", class: "quiet assign", "data-testid": "assign", "data-pid": process.pid, tabindex: -1 }, "Assign…"));
  }
  return row;
}

function update(row, process) {
  if (!row) return;
  row.process = process;
  const [, command, user, cpu, read, write, memory, placed, actions] = row.cells;
  setText(command.querySelector(".line"), process.cmdline || process.comm);
  command.title = [process.exe, process.unit, process.cmdline].filter(Boolean).join("\n").slice(0, 1000);
  setText(user, process.user);
  setText(cpu, percent(process.cpu_ratio));
  setText(read, rate(process.read_bps));
  setText(write, rate(process.write_bps));
  setText(memory, size(process.rss_bytes));
  setText(placed, placedBy(process));
  row.classList.toggle("idle", activity(process) < 1000);
  row.dataset.class = classOf(process);
  const undo = actions.querySelector(".unassign");
  if (undo) undo.hidden = classOf(process) === "default" && !byHand(process, report);
}

function placedBy(process) {
  if (byHand(process, report)) return "hand, once";
  if (process.inherited) return "its parent";
  if (isChosenInGuest(process)) return "its guest";
  if (ruleOf(process) !== null) return `rule ${ruleOf(process)}`;
  return "";
}

function select(row, focus = true) {
  selected?.classList.remove("selected");
  selected?.setAttribute("tabindex", "-1");
  selected = row;
  if (!row) return;
  row.setAttribute("tabindex", "0");
  if (focus) {
    row.classList.add("selected");
    row.focus();
  }
}

function onKey(event) {
  const row = event.target.closest?.(".process-row");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const every = [...table.querySelectorAll(".process-row")];
  const at = every.indexOf(row);
  const moves = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: every.length - 1 };
  if (event.key in moves) {
    event.preventDefault();
    const next = every[Math.min(Math.max(moves[event.key], 0), every.length - 1)];
    select(next);
  } else if (mayChange() && (event.key === "a" || event.key === "Enter") && event.target === row) {
    event.preventDefault();
    openAssign(row.process, null, report);
  } else if (mayChange() && (event.key === "x" || event.key === "Delete") && event.target === row) {
    event.preventDefault();
    unassign(row.process, report);
  }
}

const dropTarget = (event) => event.target.closest?.(".lane[data-class], tbody.group[data-class], .drop-bar [data-class]");

function markTarget(target) {
  for (const each of document.querySelectorAll(".over")) if (each !== target) each.classList.remove("over");
  target?.classList.add("over");
}

function startDragging() {
  table.addEventListener("dragstart", (event) => {
    const row = event.target.closest?.(".process-row");
    if (!row) return;
    dragged = row.process;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", `${dragged.pid} ${dragged.comm}`);
    // Not at once: a change of the page in dragstart ends the drag in some browsers.
    setTimeout(() => {
      if (dragged) showDropBar();
    });
  });
  document.addEventListener("dragover", (event) => {
    const target = dragged && dropTarget(event);
    markTarget(target || null);
    if (target) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    const target = dragged && dropTarget(event);
    if (!target) return;
    event.preventDefault();
    const process = dragged;
    const name = target.dataset.class;
    endDrag();
    if (name === classOf(process)) return;
    if (name === "default") unassign(process, report);
    else openAssign(process, name, report);
  });
  document.addEventListener("dragend", endDrag);
}

// The lanes may be scrolled away: while a row is dragged the classes are also
// at the top of the window.
function showDropBar() {
  document.body.classList.add("dragging");
  if (document.getElementById("lanes").getBoundingClientRect().bottom > 200) return;
  document.body.append(element("div", { class: "drop-bar", "data-testid": "drop-bar" },
    ...classNames().map((name) => element("span", { class: `c${laneOf(name).dataset.colour}`, "data-class": name },
      element("span", { class: "swatch", "aria-hidden": "true" }), name))));
}

function endDrag() {
  dragged = null;
  document.querySelector(".drop-bar")?.remove();
  document.body.classList.remove("dragging");
  markTarget(null);
}

export function start() {
  filter.addEventListener("input", () => report && render());
  table.addEventListener("keydown", onKey);
  table.addEventListener("click", (event) => {
    const row = event.target.closest(".process-row");
    if (!row) return;
    select(row);
    if (event.target.closest(".assign")) openAssign(row.process, null, report);
    else if (event.target.closest(".unassign")) unassign(row.process, report);
  });
  if (mayChange()) startDragging();
}
