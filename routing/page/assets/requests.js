// The log of requests: filtered by the address, followed as it grows, older ones by the page.

import { explain, leave } from "./admin.js";
import { Failure, askAdmin, serverNow } from "./api.js";
import { announce, button, element, labelled } from "./dom.js";
import { failure, requestLink } from "./failure.js";
import { badge } from "./figures.js";
import { LANGUAGE, dateTime, dollars, number, seconds } from "./formats.js";
import { every } from "./looking.js";
import { oneRequest } from "./request.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.requests;

const NAMES = Object.keys(TEXT.fields);
const LIVE_MS = 2000;
const PAGE = 100;
/** More rows than that are not kept on the page while it is followed: it is a log, not an archive. */
const MOST_ROWS = 1000;

/** Show the log, or the one request that the address names, in `main`, until `ended`. */
export async function requests(main, { rest, query, ended }) {
  if (rest) await oneRequest(main, rest, ended);
  else await new Log(main, query, ended).start();
}

class Log {
  #newest = 0;
  #oldest = 0;
  #asked = 0;

  constructor(main, query, ended) {
    Object.assign(this, { main, query, ended });
  }

  async start() {
    let told;
    try {
      told = await this.#ask({ limit: PAGE });
    } catch (error) {
      // A filter that makes no sense is said where it can be changed.
      const isFilter = error instanceof Failure && error.status === 400;
      if (this.ended.aborted) return;
      if (!isFilter) return explain(this.main, TEXT.title, error, () => this.start());
      this.#layOut();
      this.problem.replaceChildren(failure(error));
      return;
    }
    this.#layOut();
    this.#show(told, "older");
    every(LIVE_MS, () => this.#follow(), this.ended);
  }

  #ask(more) {
    const asked = new URLSearchParams([...this.query].filter(([, value]) => value));
    for (const [name, value] of Object.entries(more)) asked.set(name, value);
    return askAdmin(`requests?${asked}`, { signal: this.ended });
  }

  #layOut() {
    const inputs = Object.fromEntries(NAMES.map((name) => [
      name, element("input", { name, value: this.query.get(name) ?? "", placeholder: TEXT.hints[name], autocomplete: "off" }),
    ]));
    this.following = element("input", { type: "checkbox", checked: true });
    this.problem = element("div", {});
    this.rows = element("tbody", {});
    this.more = element("p", { class: "row" });
    this.main.replaceChildren(
      element("div", { class: "row head" }, element("h2", {}, TEXT.title), leave()),
      element(
        "form",
        {
          class: "row filters",
          onsubmit: (event) => {
            event.preventDefault();
            const chosen = new URLSearchParams(NAMES.map((name) => [name, inputs[name].value.trim()]).filter(([, value]) => value));
            location.hash = `#/requests${chosen.size ? `?${chosen}` : ""}`;
          },
        },
        ...NAMES.map((name) => labelled(TEXT.fields[name], inputs[name])),
        element("button", { class: "primary" }, TEXT.apply),
        this.query.size > 0 && element("a", { href: "#/requests" }, TEXT.clear),
        element("label", { class: "check" }, this.following, TEXT.follow),
      ),
      this.problem,
      element(
        "div",
        { class: "scroll log-table", tabindex: "0", role: "region", "aria-label": TEXT.caption },
        element("table", {}, element("thead", {}, element("tr", {}, ...TEXT.heads.map((head) => element("th", { scope: "col" }, head)))), this.rows),
      ),
      this.more,
    );
  }

  #show({ data, names, newest }, where) {
    const numbers = data.map((each) => each.number);
    // From there on is looked for what comes, even where none is like these so far.
    if (where === "newer" || !this.#newest) this.#newest = Math.max(this.#newest, newest, ...numbers);
    if (where === "older") {
      this.#oldest = Math.min(this.#oldest || Infinity, ...numbers);
      this.#asked += data.length;
    }
    const made = data.map((each) => rowOf(each, names));
    if (where === "older") this.rows.append(...made);
    else this.rows.prepend(...made.reverse());
    const isAll = where === "older" && data.length < PAGE;
    const isFirst = where === "newer" && this.rows.children.length === data.length;
    if (where === "newer" && !isFirst) return;
    this.more.replaceChildren(
      isAll || isFirst
        ? element("span", { class: "quiet" }, this.rows.children.length ? TEXT.noMore : TEXT.none)
        : button(TEXT.older, () => this.#older()),
    );
  }

  async #older() {
    try {
      this.#show(await this.#ask({ limit: PAGE, before: this.#oldest }), "older");
    } catch (error) {
      if (this.ended.aborted) return;
      if (!(error instanceof Failure)) throw error;
      this.problem.replaceChildren(failure(error));
    }
  }

  async #follow() {
    if (!this.following.checked || this.query.get("until")) return;
    const told = await this.#ask({ after: this.#newest });
    this.#newest = Math.max(this.#newest, told.newest);
    if (!told.data.length) return;
    // What somebody reads stays where it is.
    const before = document.documentElement.scrollHeight;
    this.#show(told, "newer");
    if (scrollY > this.rows.getBoundingClientRect().top + scrollY) scrollBy(0, document.documentElement.scrollHeight - before);
    this.#trim();
    announce(TEXT.came(told.data.length));
  }

  /** Only what came by itself goes again, and older ones are asked for from where the page ends. */
  #trim() {
    const most = Math.max(MOST_ROWS, this.#asked);
    if (this.rows.children.length <= most) return;
    while (this.rows.children.length > most) this.rows.lastElementChild.remove();
    this.#oldest = Number(this.rows.lastElementChild.dataset.number);
    this.more.replaceChildren(button(TEXT.older, () => this.#older()));
  }
}

function rowOf(each, names) {
  const when = new Date(each.time);
  const tokens = each.input_tokens === null ? "–" : `${number(each.input_tokens)} → ${number(each.output_tokens)}`;
  const isToday = when.toDateString() === new Date(serverNow()).toDateString();
  const day = isToday ? "" : `${when.toLocaleDateString(LANGUAGE, { month: "short", day: "numeric" })} `;
  return element(
    "tr",
    { "data-number": each.number },
    ...[
      element("time", { datetime: each.time, title: dateTime(each.time) }, `${day}${when.toLocaleTimeString(LANGUAGE, { hour12: false })}`),
      requestLink(each.request_id),
      each.model,
      [each.target || (each.provider === "llama-compat-cache" ? TEXT.cached : ""), each.attempts > 1 && ` (${TEXT.attempts(each.attempts)})`],
      names[each.key] ?? each.key,
      `${each.api} ${each.operation}`,
      [badge(each.status, each.status >= 400 ? "bad" : "well"), " ", each.error, each.cancelled && ` ${TEXT.left}`],
      tokens,
      each.cost_usd === null ? "–" : dollars(each.cost_usd),
      seconds(each.first_content),
      seconds(each.duration),
    ].map((cell) => element("td", {}, ...[cell].flat())),
  );
}
