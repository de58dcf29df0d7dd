/** Numbers as people read them. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const PRECISE = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** 32561 -> "32,561"; what is no whole number gets three digits. */
export const number = (value) => (Number.isInteger(value) ? WHOLE : SHORT).format(value);

/** 50123.456 -> "50,123.46". */
export const precise = (value) => PRECISE.format(value);

/** 0.1234 -> "12.3 %". */
export const share = (value) => `${(100 * value).toFixed(value > 0 && value < 0.001 ? 2 : 1)} %`;

/** 15300000 -> "15.3 MB". */
export function bytes(value) {
  const power = Math.min(UNITS.length - 1, value < 1000 ? 0 : Math.floor(Math.log10(value) / 3));
  return `${SHORT.format(value / 1000 ** power)} ${UNITS[power]}`;
}

/** Seconds, in the unit that fits: 0.00004 -> "40 µs", 75 -> "1 min 15 s". */
export function duration(seconds) {
  if (seconds < 0.001) return `${SHORT.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${SHORT.format(seconds * 1e3)} ms`;
  if (seconds < 60) return `${SHORT.format(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return two(whole, 60, "min", 1, "s");
  return whole < 86400 ? two(whole, 3600, "h", 60, "min") : two(whole, 86400, "d", 3600, "h");
}

/** Two units; the second one is left out where there is none of it. */
function two(seconds, large, name, small, rest) {
  const left = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${name}${left ? ` ${left} ${rest}` : ""}`;
}

/** 0.25 -> "0.25", 1234.5 -> "1,235". */
export const rate = (perSecond) => (perSecond >= 100 ? WHOLE : SHORT).format(perSecond);

/** The first characters of a digest. */
export const short = (digest, length = 12) => digest.slice(0, length);

/** The first letter as a capital. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
