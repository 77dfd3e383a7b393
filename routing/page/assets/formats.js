// Numbers, sums and moments, as people of the page's language write them.

import { WORDS } from "./strings.js";

/** Of the words in strings.js; each function here writes as is usual in it. */
export const LANGUAGE = "en";

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString(LANGUAGE, { maximumFractionDigits: digits });

export function dollars(value) {
  if (value === null || value === undefined) return WORDS.formats.unknown;
  const isWhole = value < 1 || Number.isInteger(value);
  return `$${value.toLocaleString(LANGUAGE, { minimumFractionDigits: isWhole ? 0 : 2, maximumFractionDigits: value < 1 ? 6 : 2 })}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

/** Of memory: in MB what is less than a GB, so that it is not told as none. */
export const memory = (bytes) => (bytes > 0 && bytes < 1e9 ? `${number(bytes / 1e6)} MB` : `${number(bytes / 1e9, 1)} GB`);

export const day = (moment) => new Date(moment).toLocaleDateString(LANGUAGE, { month: "short", day: "numeric", timeZone: "UTC" });

/** A moment, whatever `Date` takes, to the second. */
export const dateTime = (moment) => new Date(moment).toLocaleString(LANGUAGE, { hour12: false });
