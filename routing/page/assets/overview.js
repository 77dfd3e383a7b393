// What happened, what happens now, and what went wrong.

import { explain, leave } from "./admin.js";
import { Failure, askAdmin } from "./api.js";
import { budgetIn, budgetShown } from "./budgets.js";
import { chart } from "./chart.js";
import { element, focusIn, labelled, table } from "./dom.js";
import { failure, requestLink } from "./failure.js";
import { when } from "./figures.js";
import { dateTime, dollars, number, seconds } from "./formats.js";
import { every } from "./looking.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.overview;

const LIVE_MS = 2000;
const HISTORY_MS = 15000;

const SPAN_KEY = "llama-compat-span";

// Errors have the second colour in every chart.
const errors = { name: TEXT.series.errors, kind: "bar", color: 1, of: (point) => point.errors };
const bar = (name, member) => ({ name, kind: "bar", of: (point) => point[member] });
const line = (name, member) => ({ name, kind: "line", of: (point) => point[member] });

const CHARTS = [
  [TEXT.charts.requests, [{ name: TEXT.series.well, kind: "bar", of: (point) => point.requests - point.errors }, errors], number],
  [TEXT.charts.errors, [errors], number],
  [TEXT.charts.tokens, [bar(TEXT.series.input, "input_tokens"), bar(TEXT.series.output, "output_tokens")], number],
  [TEXT.charts.cost, [bar(TEXT.series.dollars, "cost")], dollars],
  [TEXT.charts.whole, [line(TEXT.series.median, "median"), line(TEXT.series.most, "p95"), line(TEXT.series.mean, "mean")], seconds],
  [TEXT.charts.first, [line(TEXT.series.median, "first_content")], seconds],
];

/** Show it in `main`, until `ended`. */
export async function overview(main, { ended }) {
  await new Overview(main, ended).start();
}

class Overview {
  constructor(main, ended) {
    Object.assign(this, { main, ended });
  }

  async start() {
    let live;
    try {
      live = await this.#ask("live");
    } catch (error) {
      if (!this.ended.aborted) explain(this.main, TEXT.title, error, () => this.start());
      return;
    }
    this.span = element(
      "select",
      { onchange: () => { sessionStorage.setItem(SPAN_KEY, this.span.value); this.#history(); } },
      ...Object.entries(TEXT.spans).map(([value, text]) => element("option", { value }, text)),
    );
    this.span.value = sessionStorage.getItem(SPAN_KEY) ?? "24h";
    this.past = element("div", { class: "past-view" });
    this.now = element("div", { class: "now-view" });
    this.budgets = element("div", {});
    this.errors = element("div", { class: "now-view" });
    this.verdicts = element("div", { class: "now-view" });
    this.main.replaceChildren(
      element("div", { class: "row head" }, element("h2", {}, TEXT.title), labelled(TEXT.last, this.span), leave()),
      this.past,
      this.budgets,
      this.now,
      this.errors,
      this.verdicts,
    );
    this.#showLive(live);
    await this.#history();
    every(LIVE_MS, async () => this.#showLive(await this.#ask("live")), this.ended);
    every(HISTORY_MS, () => this.#history(), this.ended);
  }

  #ask(path) {
    return askAdmin(path, { signal: this.ended });
  }

  async #history() {
    try {
      this.#showBudgets(await this.#ask("access"));
      const [told, errors, verdicts] = await Promise.all([
        this.#ask(`overview?span=${this.span.value}`), this.#ask("errors"), this.#ask("guardrails"),
      ]);
      this.#showPast(told);
      this.#showErrors(errors);
      this.#showVerdicts(verdicts);
    } catch (error) {
      if (this.ended.aborted) return;
      if (!(error instanceof Failure)) throw error;
      this.past.replaceChildren(failure(error));
    }
  }

  #showPast({ points, by, names, before, errors: top, ...range }) {
    const open = openIn(this.past);
    keepingScroll(this.past, () => this.past.replaceChildren(
      totals(points, before, TEXT.spans[range.span]),
      element("div", { class: "charts" }, ...CHARTS.map(([title, series, shown]) => chart(title, points, range, series, shown))),
      topErrors(top),
      element("div", { class: "groups" }, ...Object.entries(by).map(([group, uses]) => groupTable(group, uses, names))),
    ));
    reopen(this.past, open);
  }

  /** The budgets that there are, those that are nearest to their end first. */
  #showBudgets({ data, teams }) {
    const ofTeams = teams.map((team) => [TEXT.team(team.id), team.standing]);
    const ofKeys = data.filter(({ state }) => state === "good").map((key) => [key.name || key.id, key.standing]);
    const found = [...ofTeams, ...ofKeys]
      .map(([name, standing]) => [name, budgetIn(standing)])
      .filter(([, budget]) => budget)
      .sort(([, one], [, other]) => urgency(other) - urgency(one));
    const said = JSON.stringify(found);
    if (this.saidOfBudgets === said) return;
    this.saidOfBudgets = said;
    this.budgets.replaceChildren(found.length === 0 ? "" : element("section", { class: "table" },
      element("h3", {}, TEXT.budgets),
      element("ul", { class: "cards" }, ...found.map(([name, budget]) =>
        element("li", {}, element("h4", {}, name),
          ...budgetShown(name, budget))))));
  }

  #showLive(told) {
    // What is the same is left alone: somebody may be selecting it.
    const before = this.told;
    this.told = JSON.stringify(told);
    if (this.told === before) return;
    const { process, requests, targets, engines, names } = told;
    keepingScroll(this.now, () => this.now.replaceChildren(
      table(TEXT.running(process), TEXT.runningHeads,
        requests.map((each) => [
          element("code", {}, each.request_id), each.model, each.target, names[each.key] ?? each.key, `${each.api} ${each.operation}`,
          seconds(each.seconds), each.sent_bytes ? `${number(each.sent_bytes)} B` : TEXT.waiting, each.attempts, each.guardrails,
        ]),
        { empty: TEXT.noneRunning }),
      table(TEXT.targets, TEXT.targetHeads,
        targets.map((each) => [
          each.id, state(each), each.in_flight, each.waiting, number(each.attempts), number(each.errors), each.last_error ?? "",
          seconds(each.first_content_seconds), seconds(each.whole_reply_seconds),
        ]),
        { empty: TEXT.noTargets }),
      table(TEXT.engines, TEXT.engineHeads,
        engines.map((each) => [
          `${each.provider}/${each.model}${each.place ? `@${each.place}` : ""}`, each.running, each.waiting, blocks(each),
          ...["prompt_tokens", "cached_tokens", "generated_tokens", "steps", "preempted"].map((name) => number(each[name])),
        ]),
        { empty: TEXT.noEngines }),
    ));
  }

  #showErrors({ data, names }) {
    keepingScroll(this.errors, () => this.errors.replaceChildren(
      table(TEXT.lastErrors, TEXT.lastErrorHeads,
        data.map((each) => [
          dateTime(each.time * 1000), requestLink(each.request_id), each.status,
          each.error, each.model, each.target, names[each.key] ?? each.key, element("span", { class: "long" }, each.message),
        ]),
        { empty: TEXT.noErrors }),
    ));
  }

  #showVerdicts({ data, names }) {
    keepingScroll(this.verdicts, () => this.verdicts.replaceChildren(
      table(TEXT.verdicts, TEXT.verdictHeads,
        data.map((each) => [
          dateTime(each.time * 1000), requestLink(each.request_id),
          each.guardrails, each.status, each.model, names[each.key] ?? each.key, each.api,
        ]),
        { empty: TEXT.noVerdicts }),
    ));
  }
}

function totals(points, before, span) {
  const sum = (member) => points.reduce((total, point) => total + (point[member] ?? 0), 0);
  const costs = points.filter((point) => point.cost !== null);
  const requests = sum("requests");
  const cost = costs.length || !points.length ? sum("cost") : null;
  const mean = requests ? points.reduce((total, point) => total + (point.mean ?? 0) * point.requests, 0) / requests : null;
  const words = TEXT.figures;
  // Of some it is bad if there are more, of others it says nothing.
  const figures = [
    [words.requests, number(requests), requests, before?.requests],
    [words.errors, `${number(sum("errors"))}${requests ? ` (${number((sum("errors") / requests) * 100, 1)} %)` : ""}`, sum("errors"), before?.errors, "bad"],
    [words.input, number(sum("input_tokens")), sum("input_tokens"), before?.input_tokens],
    [words.output, number(sum("output_tokens")), sum("output_tokens"), before?.output_tokens],
    [words.cost, dollars(cost), cost, before?.cost],
    [words.mean, seconds(mean), mean, before?.mean, "bad"],
  ];
  return element("dl", { class: "totals" }, ...figures.map(([name, value, now, then, kind]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value), element("dd", { class: "change" }, change(now, then, before, span, kind)))));
}

/** How much more or less there was than in the period before. */
function change(now, then, before, span, kind) {
  if (!before) return TEXT.noBefore;
  if (now === null || then === null || then === undefined) return "";
  if (!then) return now ? TEXT.fresh(span) : TEXT.same(span);
  const share = Math.round(((now - then) / then) * 100);
  if (!share) return TEXT.same(span);
  const shown = `${number(Math.abs(share))} %`;
  const words = share > 0 ? TEXT.more(shown, span) : TEXT.less(shown, span);
  return element("span", { class: kind === "bad" && share > 10 ? "problem" : "" }, element("span", { "aria-hidden": "true" }, share > 0 ? "▲ " : "▼ "), words);
}

const topErrors = (errors) =>
  table(TEXT.topErrors, TEXT.errorHeads,
    errors.map((each) => [
      `${each.error} (${each.status})`, number(each.requests), each.model, each.provider, each.last ? when(new Date(each.last * 1000).toISOString()) : "",
      element("span", { class: "long" }, each.message ?? ""), each.request_id ? requestLink(each.request_id) : "",
    ]),
    { empty: TEXT.noErrors });

const urgency = ({ used, limit, forecast }) => (limit ? Math.max(used, forecast ?? 0) / limit : 1);
const groupTable = (group, uses, names) =>
  table(TEXT.groups[group].by, [TEXT.groups[group].one, ...TEXT.groupHeads],
    uses.map((use) => [
      names[use.name] ?? (use.name || TEXT.noName), number(use.requests), number(use.errors),
      number(use.input_tokens + use.output_tokens), dollars(use.cost), seconds(use.mean),
    ]));

function state({ cooling_seconds: cooling, recent_failures: failures }) {
  if (cooling > 0) return TEXT.cooling(cooling);
  return failures ? TEXT.failing(failures) : TEXT.well;
}

const blocks = ({ used_blocks: used, total_blocks: total }) =>
  total ? TEXT.blocks(used, total) : "–";

// Which tables are open, and how far they are scrolled, outlives that they are made anew.

const openIn = (root) => new Set([...root.querySelectorAll("details[open]")].map((each) => titleOf(each)));

function reopen(root, titles) {
  for (const each of root.querySelectorAll("details")) each.open = titles.has(titleOf(each));
}

const titleOf = (details) => details.closest("section")?.querySelector("h3")?.textContent;

function keepingScroll(root, change) {
  const scrolls = () => [...root.querySelectorAll(".scroll")];
  const nameOf = (scroll) => scroll.getAttribute("aria-label");
  const before = new Map(scrolls().map((each) => [nameOf(each), each.scrollLeft]));
  const refocus = focusIn(root);
  change();
  for (const each of scrolls()) each.scrollLeft = before.get(nameOf(each)) ?? 0;
  refocus(root);
}
