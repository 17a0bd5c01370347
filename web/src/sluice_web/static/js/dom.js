// SPDX-License-Identifier: GPL-2.0-or-later
// Small helpers. Text always goes in as text: names come from guests.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function setText(target, text) {
  if (target && target.textContent !== text) target.textContent = text;
}

// Fills a table of figures; the first of a row is when they were seen.
export function figures(table, titles, rows) {
  const head = titles.map((title, index) => element("th", { scope: "col", class: index ? "num" : "" }, title));
  const body = rows.map(([at, ...values]) => element("tr", {}, element("th", { scope: "row" }, at), ...values.map((value) => element("td", { class: "num" }, value))));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

export const RESOURCES = { "blk-read": "Disk read", "blk-write": "Disk write", "net-tx": "Network out", "net-rx": "Network in" };
const MARKS = { perfect: "●", good: "◐", poor: "▲", unknown: "○" };

// Shows a verdict of a stream; true if it is another one.
export function showVerdict(row, stream) {
  const shown = row.querySelector("[data-field=verdict]");
  const word = stream.verdict ?? "unknown";
  setText(row.querySelector("[data-field=reason]"), stream.reason ?? "");
  setText(row.querySelector("[data-field=source]"), stream.source ?? "client");
  if (shown.classList.contains(word)) return false;
  shown.className = `verdict ${word}`;
  shown.textContent = `${MARKS[word]} ${word}`;
  return true;
}

export const mayChange = () => ["operator", "admin"].includes(document.body.dataset.role);

// Opens the page's one dialog with the given content; resolves when it closes.
export function openDialog(title, ...content) {
  const dialog = document.getElementById("dialog");
  dialog.replaceChildren(element("h2", { id: "dialog-title" }, title), ...content);
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

export function closeDialog() {
  document.getElementById("dialog").close();
}

// Whether somebody still has this part of a dialog before them.
export const isInDialog = (part) => part.isConnected && document.getElementById("dialog").open;
