// SPDX-License-Identifier: GPL-2.0-or-later
// Numbers as people read them. As in formatting.py: at most three
// significant digits, always a unit. An e2e test holds the two together.

export const NO_VALUE = "–";

export function significant(value) {
  if (value <= 0) return "0";
  if (value < 0.0005) return "<0.001";
  for (const [limit, decimals] of [[0.9995, 3], [9.995, 2], [99.95, 1]]) {
    if (value < limit) return value.toFixed(decimals);
  }
  return value.toFixed(0);
}

// In the largest unit that the value reaches as it is rounded.
function scaled(value, ...units) {
  if (value === null || value === undefined) return NO_VALUE;
  const [unit, factor] = units.find((one) => value >= one[1] * 0.9995) ?? units.at(-1);
  return `${significant(value / factor)} ${unit}`;
}

export const rate = (bytesPerSecond) => scaled(bytesPerSecond, ["GB/s", 1e9], ["MB/s", 1e6]);
export const linkRate = (bytesPerSecond) => scaled(bytesPerSecond && bytesPerSecond * 8, ["Gbit/s", 1e9], ["Mbit/s", 1e6]);
export const milliseconds = (ms) => scaled(ms, ["s", 1e3], ["ms", 1]);
export const size = (bytes) =>
  (bytes < 999.5 && bytes !== null ? `${bytes.toFixed(0)} B` : scaled(bytes, ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]));

export function processorWait(stream) {
  const wait = stream.processor_wait_ms_per_second;
  if (wait === null || wait === undefined) return "wait for processors unknown";
  return `waits ${milliseconds(wait)} of each second for processors${stream.processor_pressure > 1 ? ", too long" : ""}`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return NO_VALUE;
  const whole = Math.max(seconds, 0);
  if (whole < 9.95) return `${whole.toFixed(1)} s`;
  for (const [unit, factor] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (whole >= factor * 2) return `${(whole / factor).toFixed(0)} ${unit}`;
  }
  return `${whole.toFixed(0)} s`;
}

// The part of a limit's burst that may pass at once, or the debt that comes first; bytes or
// operations, the scarcer of both. A leaky bucket has no burst.
export function burstLeft(sample, isLeaky = false) {
  const buckets = [
    { left: sample.tokens_bytes, burst: sample.burst_bytes, text: size },
    { left: sample.tokens_operations, burst: sample.burst_operations, text: (count) => `${count} ops` },
  ].filter(({ left, burst }) => typeof left === "number" && burst > 0 && (left < 0 || !isLeaky));
  if (!buckets.length) return "";
  const { left, burst, text } = buckets.reduce((one, other) => (other.left / other.burst < one.left / one.burst ? other : one));
  if (left < 0) return `owes ${text(-left)}`;
  // Rounded down: 99.9 % are not all of it.
  return `${Math.min(Math.floor((left * 100) / burst), 100)} % of ${text(burst)}`;
}

// CPU in per cent of one vCPU.
export function percent(ratio) {
  return ratio === null || ratio === undefined ? NO_VALUE : `${(ratio * 100).toFixed(0)} %`;
}

// Local time; with the date if it is not today's.
export function clock(at, withSeconds = true) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString([], {
    hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined, hourCycle: "h23",
  });
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

// As sluiced reads them (domain/rates.py; an e2e test holds both together): a small b is
// a bit, and a number has its unit. Where text is sent, sluiced alone reads it; this is
// for the hint that is shown while a person types.
const RATE = /^(-?[0-9]+(?:\.[0-9]+)?)\s*(?:([kKMGT]i?)?(B|b|bit|bytes?)?(?:\/s|ps)?)$/;
const EXPONENTS = { k: 1, K: 1, M: 2, G: 3, T: 4 };
const prefixFactor = (prefix) =>
  prefix ? (prefix.endsWith("i") ? 1024 : 1000) ** EXPONENTS[prefix[0]] : 1;

// "20 MB/s", "160 Mbit/s", "unlimited" or nothing → bytes per second, or null for
// unlimited. Throws an Error with an example to type.
export function parseRate(text) {
  const typed = given(text);
  if (typed === null) return null;
  const [, digits, prefix, unit] = RATE.exec(typed) ?? [];
  if (digits === undefined) throw new Error(`${quoted(typed)} is not a rate; type for example 20 MB/s, 160 Mbit/s or unlimited.`);
  if (!prefix && !unit && Number(digits) !== 0) throw new Error(`${quoted(typed)} has no unit; type for example ${digits} MB/s.`);
  const value = (Number(digits) * prefixFactor(prefix)) / (unit === "b" || unit === "bit" ? 8 : 1);
  if (!Number.isFinite(value)) throw new Error(`${quoted(typed)} is out of range.`);
  return Math.round(value);
}

// The typed text, for sluiced to read; null for nothing.
export function given(text) {
  const typed = text.trim();
  return /^(|unlimited|none|nothing|default|any|max|off|–|-)$/i.test(typed) ? null : typed;
}

// A number of things, or the typed text, for sluiced to refuse.
export function count(text) {
  const typed = given(text);
  // JSON has no infinity: it would be sent as null, which is the default.
  return typed === null || !Number.isFinite(Number(typed)) ? typed : Number(typed);
}

// Messages repeat the typed text, which may be a whole page.
const quoted = (text) => `“${text.length > 40 ? `${text.slice(0, 39)}…` : text}”`;

// Bytes in binary units where these are exact: queues and windows mostly are.
export function binarySize(bytes) {
  const [unit, factor] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find(([, one]) => bytes >= one && bytes % one === 0) ?? ["B", 1];
  return `${bytes / factor} ${unit}`;
}

export function duration(ns) {
  const [unit, factor] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, one]) => ns >= one) ?? ["ns", 1];
  return `${Number((ns / factor).toPrecision(6))} ${unit}`;
}

// The next of 1, 2, 5 × 10^n: a scale that people can read.
export function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
