// SPDX-License-Identifier: GPL-2.0-or-later
// Order of the process table: grouped by class, a tree inside each group, the
// busiest first. Pure.

export const DEFAULT_CLASS = "default";
export const classOf = (process) => process.class ?? DEFAULT_CLASS;
export const activity = (process) => (process.read_bps ?? 0) + (process.write_bps ?? 0) + (process.cpu_ratio ?? 0) * 1e6;
// The number of the rule that placed a process; null if none did. The agent knows it
// as rule-7.
export const ruleOf = (process) => (process.rule ? process.rule.replace(/^rule-/, "") : null);
// Whether root of the guest put it into its class, by sluice-agent shape: no rule of this host.
export const isChosenInGuest = (process) => /^shape-\d/.test(process.rule ?? "");

// The ancestor by which a process is in its class; itself if it was placed directly.
// A hostile guest may report a loop of parents.
export function bringerOf(process, processes, isPlaced) {
  const byPid = new Map(processes.map((one) => [one.pid, one]));
  const seen = new Set();
  let bringer = process;
  while (bringer.inherited && !isPlaced(bringer) && !seen.has(bringer)) {
    seen.add(bringer);
    const parent = byPid.get(bringer.ppid);
    if (parent?.class !== process.class) break;
    bringer = parent;
  }
  return bringer;
}

// → [{name, rows: [{process, depth}], read_bps, write_bps, cpu_ratio}], one per
// class in the order given; processes of an unknown class count as default's.
export function groups(processes, classNames) {
  const known = new Set(classNames);
  const byPid = new Map(processes.map((process) => [process.pid, process]));
  const groupOf = (process) => (known.has(classOf(process)) ? classOf(process) : DEFAULT_CLASS);
  return classNames.map((name) => {
    const members = processes.filter((process) => groupOf(process) === name);
    const sum = (field) => members.reduce((total, process) => total + (process[field] ?? 0), 0);
    return {
      name, rows: tree(members, byPid, groupOf),
      read_bps: sum("read_bps"), write_bps: sum("write_bps"), cpu_ratio: sum("cpu_ratio"),
    };
  });
}

function tree(members, byPid, groupOf) {
  const children = new Map();
  const roots = [];
  const isMember = new Set(members);
  for (const process of members) {
    const parent = byPid.get(process.ppid);
    if (parent && parent !== process && isMember.has(parent) && groupOf(parent) === groupOf(process)) {
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(process);
    } else {
      roots.push(process);
    }
  }
  const weights = weigh(walk(roots, members, children));
  const busiest = (a, b) => (weights.get(b) ?? 0) - (weights.get(a) ?? 0) || a.pid - b.pid;
  for (const siblings of [roots, ...children.values()]) siblings.sort(busiest);
  return walk(roots, members, children).map(({ process, depth }) => ({ process, depth }));
}

// Each process once, after its parent, as {process, depth, parent}. No recursion: a
// guest may nest processes deeper than the browser's stack. A loop of parents has no
// root; a hostile guest may report one, and it begins at its first member.
function walk(roots, members, children) {
  const rows = [];
  const placed = new Set();
  for (const start of [...roots, ...members]) {
    const waiting = [{ process: start, depth: 0, parent: null }];
    while (waiting.length) {
      const row = waiting.pop();
      if (placed.has(row.process)) continue;
      placed.add(row.process);
      rows.push(row);
      for (const child of (children.get(row.process) ?? []).toReversed()) {
        waiting.push({ process: child, depth: row.depth + 1, parent: row.process });
      }
    }
  }
  return rows;
}

// process → the activity of it and of all below it.
function weigh(rows) {
  const weights = new Map(rows.map(({ process }) => [process, activity(process)]));
  for (const { process, parent } of rows.toReversed()) {
    if (parent) weights.set(parent, weights.get(parent) + weights.get(process));
  }
  return weights;
}
