// SPDX-License-Identifier: GPL-2.0-or-later
// Order of the process table: grouped by class, a tree inside each group, the
// busiest first. Pure.

export const DEFAULT_CLASS = "default";
export const classOf = (process) => process.class ?? DEFAULT_CLASS;
export const activity = (process) => (process.read_bps ?? 0) + (process.write_bps ?? 0) + (process.cpu_ratio ?? 0) * 1e6;

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
      if (!children.has(parent.pid)) children.set(parent.pid, []);
      children.get(parent.pid).push(process);
    } else {
      roots.push(process);
    }
  }
  const weights = new Map();
  const weigh = (process, seen) => {
    if (seen.has(process.pid)) return 0;
    seen.add(process.pid);
    const weight = activity(process) + (children.get(process.pid) ?? []).reduce((sum, child) => sum + weigh(child, seen), 0);
    weights.set(process.pid, weight);
    return weight;
  };
  roots.forEach((root) => weigh(root, new Set()));
  const busiest = (a, b) => (weights.get(b.pid) ?? 0) - (weights.get(a.pid) ?? 0) || a.pid - b.pid;
  const rows = [];
  const placed = new Set();
  const walk = (process, depth) => {
    if (placed.has(process.pid)) return;
    placed.add(process.pid);
    rows.push({ process, depth });
    (children.get(process.pid) ?? []).sort(busiest).forEach((child) => walk(child, depth + 1));
  };
  roots.sort(busiest).forEach((root) => walk(root, 0));
  // A loop of parents has no root; a hostile guest may report one.
  members.forEach((process) => walk(process, 0));
  return rows;
}
