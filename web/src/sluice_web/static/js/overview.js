// SPDX-License-Identifier: GPL-2.0-or-later
// The overview: streams' verdicts, VMs' bars, the host's uplink.

import { setText, showVerdict } from "./dom.js";
import { linkRate, niceAbove, rate, size } from "./format.js";
import { on } from "./live.js";
import { refresh } from "./refresh.js";
import { drawStrip } from "./strip.js";

const NO_UPLINK = "none chosen, or not to be read";
const HELD_MS = 5000;
let known = null;
let knownAuto = null;

function showLive(live) {
  if (live.problem) return;
  const rows = [...document.querySelectorAll("[data-testid=vm-row]")];
  for (const row of rows) {
    const classes = Object.values(live.domains?.[row.dataset.domain]?.classes ?? {});
    for (const cell of row.querySelectorAll("[data-resource]")) showBar(cell, classes);
  }
  const uplink = live.uplink;
  if (uplink) {
    const full = uplink.link_bytes_per_second ? ` of ${linkRate(uplink.link_bytes_per_second)}${uplink.is_beyond ? " beyond the host" : ""}` : "";
    const beneath = uplink.ports.join() === uplink.name ? "" : ` (${uplink.ports.join(", ")})`;
    const first = uplink.first.length ? `, ${uplink.first.join(", ")} first` : "";
    const not = uplink.first_reason ? `, not first: ${uplink.first_reason}` : "";
    setText(document.getElementById("uplink"), `${uplink.name}${beneath}: ${linkRate(uplink.bytes_per_second)}${full}, ${size(uplink.backlog_bytes)} queued${first}${not}`);
  } else {
    setText(document.getElementById("uplink"), NO_UPLINK);
  }
}

function showBar(cell, classes) {
  const samples = classes.map((each) => each[cell.dataset.resource] ?? {});
  const sum = (field) => samples.reduce((total, sample) => total + (sample[field] ?? 0), 0);
  const now = sum("bytes_per_second");
  // Against the VM's ceiling; a VM without one against the most it took here.
  const ceiling = Number(cell.dataset.ceiling);
  const scale = ceiling || Math.max(Number(cell.dataset.scale ?? 0), niceAbove(Math.max(now, 1e6)));
  cell.dataset.scale = scale;
  const backlog = sum("backlog_bytes");
  setText(cell.querySelector(".rate"), classes.length ? `${rate(now)}${ceiling ? ` of ${rate(ceiling)}` : ""}` : "–");
  const bar = cell.querySelector(".bar");
  bar.hidden = !classes.length;
  const share = Math.min(now / scale, 1);
  bar.style.setProperty("--now", share.toFixed(4));
  bar.style.setProperty("--behind", backlog > 0 ? Math.min(Math.max(backlog / scale, 0.03), 1 - share).toFixed(4) : 0);
  bar.title = backlog > 0 ? `${size(backlog)} wait` : "";
}

function showStreams(streams) {
  if (streams.problem) return;
  // A stream may have been declared or forgotten elsewhere.
  const shown = [...document.querySelectorAll("[data-stream]")].map((row) => row.dataset.stream);
  let turned = shown.sort().join() !== streams.map((stream) => stream.name).sort().join();
  for (const stream of streams) {
    const row = document.querySelector(`[data-stream="${CSS.escape(stream.name)}"]`);
    if (row && showVerdict(row, stream)) turned = true;
  }
  if (turned) refreshPart();
}

// A VM or a stream came, went or changed its state, ceiling or verdict: the server words it anew.
async function refreshPart() {
  if (await refresh("main")) drawStrips();
}

function showDomains(domains) {
  // After a problem the list is asked for again in any case.
  if (domains.problem) {
    known = domains.problem.detail;
    return;
  }
  const facts = JSON.stringify(domains.map((one) => [one.name, one.state, one.attached, one.needs_restart, one.ceiling, one.shaped_sentence]));
  if (known !== null && known !== facts) refreshPart();
  known = facts;
}

// Auto-shaping decides often while it tunes: its words alone are replaced.
function refreshAuto() {
  const rows = [...document.querySelectorAll("[data-stream]")].map((row) => row.dataset.stream);
  return refresh("#auto-state", ...rows.map((name) => `[data-stream="${CSS.escape(name)}"] [data-field=protection]`));
}

function showAuto(auto) {
  const held = (auto.devices ?? []).flatMap((device) => device.held.map((one) => [one.domain, one.class, one.resource]));
  // The rates of what a gate holds change each second: now and then is often enough.
  const turn = held.length && Math.floor(Date.now() / HELD_MS);
  const facts = auto.problem ? auto.problem.detail : JSON.stringify([auto.enabled, auto.dry_run, auto.state, auto.limits, held, turn]);
  if (knownAuto !== null && knownAuto !== facts && !auto.problem) refreshAuto();
  knownAuto = facts;
}

function drawStrips() {
  for (const canvas of document.querySelectorAll("canvas[data-strip]")) drawStrip(canvas);
}

on("live", showLive);
on("streams", showStreams);
on("domains", showDomains);
on("auto", showAuto);
drawStrips();
setInterval(drawStrips, 30_000);
