// Small figures that stand in a line of text or a cell: bars, curves, moments.

import { serverNow } from "./api.js";
import { drawn } from "./chart.js";
import { element } from "./dom.js";
import { LANGUAGE, dateTime } from "./formats.js";
import { WORDS } from "./strings.js";

const NEAR = 0.8;
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];

/**
 * How much is used of what there is, as a bar with its words below.
 * @param {string} name for who does not see it.
 * @param {number} used
 * @param {number} limit
 * @param {string} words
 * @param {boolean} isBound whether it is of note that little is left.
 */
export function bar(name, used, limit, words, isBound = true) {
  const share = limit > 0 ? Math.min(1, used / limit) : used > 0 ? 1 : 0;
  const kind = !isBound || share < NEAR ? "series" : share < 1 ? "near" : "full";
  // The page's policy allows no style in markup: what is as wide as a number says is drawn.
  const filled = drawn("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: kind, width: share * 100, height: 4 }));
  return element(
    "span",
    { class: "bar" },
    element("span", {
      class: "track", role: "meter", "aria-label": name, "aria-valuetext": words,
      "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": Math.min(used, limit),
    }, filled),
    element("span", { class: "words" }, words),
  );
}

/** A curve without axes, for who sees it: `values` from the oldest to the newest. */
export function spark(values) {
  const top = Math.max(...values, Number.MIN_VALUE);
  const width = 100 / Math.max(values.length, 1);
  return drawn(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    ...values.map((value, place) => {
      const tall = value > 0 ? Math.max(1, (value / top) * 24) : 0.5;
      return drawn("rect", { class: value > 0 ? "series" : "nothing", x: place * width, y: 24 - tall, width: width * 0.8, height: tall });
    }),
  );
}

/** A word or two in a frame. */
export const badge = (text, kind = "") => element("span", { class: `badge ${kind}` }, text);

/** How long ago, or in what time, `moment` is (ISO 8601); the moment itself is its title. */
export function when(moment) {
  const then = new Date(moment);
  const seconds = (then - serverNow()) / 1000;
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? ["minute", 60];
  const text = Math.abs(seconds) < 60
    ? WORDS.figures.now
    : new Intl.RelativeTimeFormat(LANGUAGE, { numeric: "auto" }).format(Math.round(seconds / size), unit);
  return element("time", { datetime: moment, title: dateTime(moment) }, text);
}
