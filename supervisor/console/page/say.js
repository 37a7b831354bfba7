// How times, spans and numbers are written, as in the texts of the command line. What is not known is said.

/** Seconds that the clock of the console is ahead of this device's. */
let ahead = 0;

export function setClock(now) {
  ahead = now - Date.now() / 1000;
}

/** Wall seconds, by the clock of the console. */
export function now() {
  return Date.now() / 1000 + ahead;
}

const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const zone = new Intl.DateTimeFormat("en-US", { timeZoneName: "short" });
const day = new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit" });

function date(at) {
  return typeof at === "number" && Number.isFinite(at) && Math.abs(at) < 8e12 ? new Date(at * 1000) : null;
}

/** 10:40:05; with the date in front when it is not today. */
export function clock(at) {
  const seen = date(at);
  if (!seen) return "unknown";
  const today = day.format(new Date(now() * 1000)) === day.format(seen);
  return today ? time.format(seen) : `${day.format(seen)} ${time.format(seen)}`;
}

/** 10:40:05 CST. */
export function stamp(at) {
  const seen = date(at);
  return seen ? `${clock(at)} ${zone.formatToParts(seen).find((part) => part.type === "timeZoneName").value}` : "unknown";
}

/** 11.2 s, 19 min 48 s, 2 h 5 min, 3 days 4 h. */
export function span(seconds, whole = false) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "unknown";
  if (seconds < 0) return `-${span(-seconds, whole)}`;
  if (seconds < 59.95) return `${whole || Number.isInteger(seconds) ? Math.floor(seconds) : seconds.toFixed(1)} s`;
  const all = Math.round(seconds);
  for (const [size, unit, below, small] of [[86400, "days", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (all < size) continue;
    const many = Math.floor(all / size);
    const rest = Math.floor((all % size) / below);
    const word = unit === "days" && many === 1 ? "day" : unit;
    return rest ? `${many} ${word} ${rest} ${small}` : `${many} ${word}`;
  }
  return "unknown";
}

/** 3 min 2 s ago. */
export function ago(at) {
  return date(at) ? `${span(Math.max(0, now() - at), true)} ago` : "at an unknown time";
}

/** 3,380,838,400. */
export function number(value, digits = 0) {
  if (typeof value !== "number") return "unknown";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** 5.6 M from a million on. */
export function amount(value, unit = "") {
  if (typeof value !== "number") return "unknown";
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(1)} ${letter}${unit}`;
  }
  return number(value) + (unit && ` ${unit}`);
}

export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function loss(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : "unknown";
}

export function percent(share) {
  return typeof share === "number" ? `${(share * 100).toFixed(1)} %` : "unknown";
}

/** The beginning of a plan's digest, as a person types it. */
export function planId(digest) {
  return String(digest ?? "").slice(0, 6);
}

/** n0417, n0031 and 12 more. */
export function names(values, limit = 6) {
  if (!values.length) return "none";
  const more = values.length - limit;
  return more > 0 ? `${values.slice(0, limit).join(", ")} and ${number(more)} more` : values.join(", ");
}

/** Ended by one full stop. */
export function sentence(text) {
  const line = String(text ?? "").trim();
  return !line || /[.!?)]$/.test(line) ? line : `${line}.`;
}
