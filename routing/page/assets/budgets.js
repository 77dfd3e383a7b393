// What a budget has come to, and what it will come to.

import { element } from "./dom.js";
import { bar } from "./figures.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.budgets;

// Cents are enough of what is more than a dollar, and a hundredth of a cent of the rest.
const round = (amount) => (amount >= 1 ? Math.round(amount * 100) / 100 : Math.round(amount * 10000) / 10000);

/** The standing of a subject that is its budget; undefined where it has none. */
export const budgetIn = (standing) => standing?.find(({ resource }) => resource === "budget");

/** A bar, and what the budget comes to if it goes on so. */
export function budgetShown(name, { used, limit, period, ends, forecast, spent_at: spentAt }) {
  const shown = bar(TEXT.of(name), used, limit, TEXT.used(round(used), limit, period));
  const said = used >= limit
    ? element("span", { class: "problem" }, TEXT.isSpent(ends))
    : spentAt ? element("span", { class: "problem" }, TEXT.spentAt(spentAt))
    : forecast === null ? null : element("span", { class: "quiet" }, TEXT.forecast(round(forecast), ends));
  return [shown, said].filter(Boolean);
}
