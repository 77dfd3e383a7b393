// Small charts in SVG, each with its numbers as a table beside it.

import { element, table } from "./dom.js";
import { LANGUAGE } from "./formats.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.chart;

const WIDTH = 300, HEIGHT = 100, GAP = 0.15;

export function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * A chart over time.
 * @param {string} title
 * @param {{time: number}[]} points `time` in seconds since 1970; where there is none, nothing happened.
 * @param {{from: number, to: number, step: number}} range
 * @param {{name: string, of: (point: object) => number|null, kind: "bar"|"line",
 *   color: number|undefined}[]} series bars stand upon each other; colours are by order otherwise.
 * @param {(value: number|null) => string} shown
 */
export function chart(title, points, { from, to, step }, series, shown) {
  const count = Math.max(1, Math.ceil((to - from) / step));
  const place = (time) => ((time - from) / step / count) * WIDTH;
  const bars = series.filter(({ kind }) => kind === "bar");
  const top = Math.max(
    ...points.map((point) => bars.reduce((sum, { of }) => sum + (of(point) ?? 0), 0)),
    ...points.flatMap((point) => series.filter(({ kind }) => kind === "line").map(({ of }) => of(point) ?? 0)),
    Number.MIN_VALUE,
  );
  const height = (value) => (value / top) * (HEIGHT - 2);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  for (const point of points) {
    let below = 0;
    bars.forEach(({ of, name, color }, order) => {
      const value = of(point) ?? 0;
      if (!value) return;
      const tall = height(value);
      const width = WIDTH / count;
      svg.append(drawn(
        "rect",
        { class: `series s${color ?? order}`, x: place(point.time) + width * GAP / 2, y: HEIGHT - below - tall, width: width * (1 - GAP), height: tall },
        drawn("title", {}, `${moment(point.time, step)}: ${name} ${shown(value)}`),
      ));
      below += tall;
    });
  }
  series.forEach(({ of, kind }, order) => {
    if (kind !== "line") return;
    const found = points.filter((point) => of(point) !== null && of(point) !== undefined);
    const middle = (point) => place(point.time + step / 2);
    if (found.length === 1) {
      svg.append(drawn("rect", { class: `series s${order}`, x: middle(found[0]) - 3, y: HEIGHT - height(of(found[0])) - 1, width: 6, height: 2 }));
    } else if (found.length) {
      const line = found.map((point) => `${middle(point)},${HEIGHT - height(of(point))}`).join(" ");
      svg.append(drawn("polyline", { class: `series s${order}`, points: line }));
    }
  });
  return element(
    "section",
    { class: "chart" },
    element("h3", {}, title),
    element("p", { class: "legend" }, ...series.map(({ name, color }, order) => element("span", { class: `key k${color ?? order}` }, name))),
    element("p", { class: "scale" }, top > Number.MIN_VALUE ? shown(top) : TEXT.nothing),
    svg,
    element("p", { class: "scale ends" }, element("span", {}, moment(from, step)), element("span", {}, TEXT.now)),
    element(
      "details",
      {},
      element("summary", {}, TEXT.asTable),
      table(TEXT.inNumbers(title), [TEXT.from, ...series.map(({ name }) => name)],
        points.map((point) => [moment(point.time, step), ...series.map(({ of }) => shown(of(point)))])),
    ),
  );
}

export function moment(time, step) {
  const date = new Date(time * 1000);
  const day = { month: "short", day: "numeric" };
  if (step >= 86400) return date.toLocaleDateString(LANGUAGE, { ...day, timeZone: "UTC" });
  return date.toLocaleString(LANGUAGE, { ...day, hour: "2-digit", minute: "2-digit", hour12: false });
}
