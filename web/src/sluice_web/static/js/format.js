// SPDX-License-Identifier: GPL-2.0-or-later
// Numbers as people read them. The same rules as formatting.py: at most three
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

export function rate(bytesPerSecond) {
  if (bytesPerSecond === null || bytesPerSecond === undefined) return NO_VALUE;
  if (bytesPerSecond >= 999.5e6) return `${significant(bytesPerSecond / 1e9)} GB/s`;
  return `${significant(bytesPerSecond / 1e6)} MB/s`;
}

export function linkRate(bytesPerSecond) {
  if (bytesPerSecond === null || bytesPerSecond === undefined) return NO_VALUE;
  const bits = bytesPerSecond * 8;
  if (bits >= 999.5e6) return `${significant(bits / 1e9)} Gbit/s`;
  return `${significant(bits / 1e6)} Mbit/s`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return NO_VALUE;
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= factor * 0.9995) return `${significant(bytes / factor)} ${unit}`;
  }
  return `${bytes.toFixed(0)} B`;
}

export function milliseconds(ms) {
  if (ms === null || ms === undefined) return NO_VALUE;
  if (ms >= 999.5) return `${significant(ms / 1000)} s`;
  return `${significant(ms)} ms`;
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

// What a sample's limit lets pass at once, as a share of its burst, or what is owed
// first; of bytes and operations what is scarcer. A leaky bucket has no burst.
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

// The API's ranges in bytes per second, and the word for no rate: of limits, floors
// and streams; of what scheduling reserves; of its peaks. An e2e test holds both together.
export const LIMIT_RATES = { low: 1024, high: 1e11, none: "unlimited" };
export const RESERVED_RATES = { low: 1, high: 1e11, none: "nothing" };
export const PEAK_RATES = { low: 1, high: 1e12, none: "nothing" };
// As the command reads them (domain/rates.py of the controller; an e2e test holds both
// together): a small b is a bit. Only a number alone is another thing here: MB/s.
const RATE = /^([0-9]+(?:[.,][0-9]+)?)\s*(?:([kKMGT]i?)?(B|b|bit|bytes?)?(?:\/s|ps)?)$/;
const EXPONENTS = { k: 1, K: 1, M: 2, G: 3, T: 4 };
const prefixFactor = (prefix) =>
  prefix ? (prefix.endsWith("i") ? 1024 : 1000) ** EXPONENTS[prefix[0]] : 1;

// "20", "20 MB/s", "160 Mbit/s", "unlimited" or nothing → bytes per second, or
// null for unlimited. Throws an Error that says what to type instead.
export function parseRate(text, { low, high, none } = LIMIT_RATES) {
  const trimmed = text.trim();
  if (trimmed === "" || /^(unlimited|none|nothing|max|off|–|-)$/i.test(trimmed)) return null;
  const match = RATE.exec(/^[0-9.,]+$/.test(trimmed) ? `${trimmed} MB/s` : trimmed);
  if (!match) {
    throw new Error(`${quoted(trimmed)} is not a rate; type for example 20 MB/s, 160 Mbit/s or ${none}.`);
  }
  const bits = match[3] === "b" || match[3] === "bit";
  const value = (number(match[1]) * prefixFactor(match[2])) / (bits ? 8 : 1);
  if (value < low || value > high) {
    const [least, most] = [`${low} B/s`, rate(high)];
    const outside = value < low ? `below ${least}` : `above ${most}`;
    throw new Error(`${quoted(trimmed)} is ${outside}; give ${least} to ${most}, or ${none}.`);
  }
  return Math.round(value);
}

const number = (digits) => Number(digits.replace(",", "."));
// As messages repeat what was typed, which may be a whole page.
const quoted = (text) => `“${text.length > 40 ? `${text.slice(0, 39)}…` : text}”`;

// JSON has no infinity: it would be sent as null, which is the default.
function finite(value, text, most) {
  if (!Number.isFinite(value)) throw new Error(`${quoted(text)} is out of range; nothing takes more than ${most}.`);
  return Math.round(value);
}

// Bytes in binary units where these are exact: queues and windows mostly are.
export function binarySize(bytes) {
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= factor && bytes % factor === 0) return `${bytes / factor} ${unit}`;
  }
  return `${bytes} B`;
}

const SIZES = { b: 1, kb: 1e3, mb: 1e6, gb: 1e9, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30 };

// "256 KiB", "1 MB", "1500" → bytes; null for nothing, "none" and "default".
export function parseSize(text) {
  const trimmed = text.trim();
  if (/^(|none|default|nothing)$/i.test(trimmed)) return null;
  const match = /^([0-9]+(?:[.,][0-9]+)?)\s*([a-z]*)$/i.exec(trimmed);
  const factor = SIZES[(match?.[2] || "b").toLowerCase()];
  if (!match || !factor) throw new Error(`${quoted(trimmed)} is not a size; type for example 256 KiB or 1 MB.`);
  return finite(number(match[1]) * factor, trimmed, "1024 GiB");
}

// A whole number of things; null for nothing.
export function parseCount(text) {
  const trimmed = text.trim();
  if (/^(|none|any|default|unlimited)$/i.test(trimmed)) return null;
  if (!/^[0-9]+$/.test(trimmed)) throw new Error(`${quoted(trimmed)} is not a whole number; type for example 200.`);
  return finite(Number(trimmed), trimmed, "10^12");
}

const TIMES = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

export function duration(ns) {
  const [unit, factor] = TIMES.find(([, one]) => ns >= one) ?? ["ns", 1];
  return `${Number((ns / factor).toPrecision(6))} ${unit}`;
}

export function parseDuration(text) {
  const trimmed = text.trim();
  const match = /^([0-9]+(?:[.,][0-9]+)?)\s*(ns|us|µs|ms|s)$/.exec(trimmed);
  if (!match) throw new Error(`${quoted(trimmed)} is not a time; type for example 20 ms.`);
  const factor = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 }[match[2]];
  return finite(number(match[1]) * factor, trimmed, "3600 s");
}

// The next of 1, 2, 5 × 10^n: a scale that people can read.
export function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
