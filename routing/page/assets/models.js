// Models, and the targets that they lead to: how each is now, and what can be done to it.

import { attempt, explain, leave } from "./admin.js";
import { Failure, askAdmin, operator, serverNow } from "./api.js";
import { drawn } from "./chart.js";
import { announce, button, confirmed, element, focusIn, labelled, openDialog, table } from "./dom.js";
import { failure } from "./failure.js";
import { badge, bar, when } from "./figures.js";
import { number, seconds } from "./formats.js";
import { every } from "./looking.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.models;

const LOOK_MS = 3000;
const SOON_DAYS = 90, DAY_MS = 86400000;

/** Show them in `main`, until `ended`. */
export async function models(main, { ended }) {
  await new Models(main, ended).start();
}

class Models {
  constructor(main, ended) {
    Object.assign(this, { main, ended, rows: new Map(), told: null, audit: "" });
  }

  async start() {
    try {
      this.told = await askAdmin("models", { signal: this.ended });
    } catch (error) {
      if (!this.ended.aborted) explain(this.main, TEXT.title, error, () => this.start());
      return;
    }
    this.search = element("input", { type: "search", placeholder: TEXT.searchHint, oninput: () => this.#show() });
    const you = element("input", { autocomplete: "name", maxlength: "60", value: operator.get(), oninput: () => operator.set(you.value.trim()) });
    this.count = element("p", { class: "quiet", role: "status" });
    this.note = element("p", { class: "quiet" });
    this.memory = element("ul", { class: "cards memory", "aria-label": TEXT.memory });
    this.list = element("ul", { class: "entries models" });
    this.done = element("div", {});
    this.main.replaceChildren(
      element("div", { class: "row head" }, element("h2", {}, TEXT.title), leave()),
      element("div", { class: "row filters" }, labelled(TEXT.search, this.search), labelled(TEXT.you, you), this.count),
      this.note,
      this.memory,
      element("section", {}, element("h3", { class: "for-readers" }, TEXT.models), this.list),
      this.done,
    );
    this.#show();
    await this.#showAudit();
    every(LOOK_MS, () => this.look(), this.ended);
  }

  async look() {
    this.told = await askAdmin("models", { signal: this.ended });
    this.#show();
  }

  #show() {
    const { data, engines, memory, process, fleet, traffic_seconds: span } = this.told;
    const wanted = this.search.value.trim().toLowerCase();
    const found = data.filter((model) => !wanted ||
      [model.id, ...model.aliases, ...model.targets.map(({ id }) => id)].some((text) => text.toLowerCase().includes(wanted)));
    const said = TEXT.found(found.length, data.length);
    if (this.count.textContent !== said) this.count.textContent = said;
    const note = [fleet ? TEXT.fleet(fleet) : TEXT.process(process), span && TEXT.traffic(span / 60)].filter(Boolean).join(" ");
    if (this.note.textContent !== note) this.note.textContent = note;
    this.#showMemory(memory);
    const rows = found.length ? found.map((model) => this.#row(model, engines, memory)) : [element("li", { class: "quiet" }, TEXT.none)];
    if (rows.length !== this.list.children.length || rows.some((row, place) => this.list.children[place] !== row)) this.list.replaceChildren(...rows);
  }

  #showMemory(memory) {
    const devices = Object.entries(memory?.devices ?? {});
    const said = JSON.stringify(devices);
    this.memory.hidden = devices.length === 0;
    if (this.saidOfMemory === said) return;
    this.saidOfMemory = said;
    this.memory.replaceChildren(...devices.map(([device, { used, bound }]) =>
      element("li", {}, element("p", {}, TEXT.memoryOf(device)), bar(TEXT.memoryOf(device), used, bound, TEXT.taken(used, bound)))));
  }

  /** A model's entry; one that is the same is left alone, as somebody may be about to press a button. */
  #row(model, engines, memory) {
    const its = engines.filter((engine) => model.targets.some((target) => isOf(engine, target)));
    const places = (memory?.models ?? []).filter((each) => model.targets.some((target) => isOf({ place: "", ...each }, target)));
    const said = JSON.stringify([rounded(model), its, places.map(settled)]);
    const before = this.rows.get(model.id);
    if (before?.said === said) return before.row;
    const refocus = focusIn(before?.row);
    const row = this.#made(model, its, places);
    this.rows.set(model.id, { said, row });
    queueMicrotask(() => refocus(row));
    return row;
  }

  #made(model, engines, places) {
    const total = model.targets.reduce((sum, { requests }) => sum + (requests ?? 0), 0);
    return element("li", { class: "model" },
      element("div", { class: "what-it-is" },
        element("h4", {}, model.id),
        element("p", { class: "badges" }, model.aliases.length > 0 && badge(TEXT.alias(model.aliases)), model.targets.length > 1 && model.balance && badge(TEXT.balance[model.balance])),
        element("p", { class: "quiet" }, facts(model)),
        element("p", { class: "quiet" }, open(model.open_to)),
        places.length > 0 && this.#loading(model, places)),
      element("div", { class: "spread" },
        lines(model, total),
        element("ul", { class: "targets", "aria-label": TEXT.targetsOf(model.id) },
          ...model.targets.map((target) => this.#target(model, target, total, {
            engine: engines.find((engine) => isOf(engine, target)),
            place: places.find((each) => isOf({ place: "", ...each }, target)),
          })))));
  }

  /** What loads a model that shares memory, and takes it out. */
  #loading(model, places) {
    const is = (...states) => places.some(({ state }) => states.includes(state));
    const named = (text) => ({ class: "small", "aria-label": `${text} ${model.id}` });
    const moves = { "data-place": `move ${model.id}` };
    return element("p", { class: "actions" },
      is("out", "parked", "leaving") && button(TEXT.load, () => this.#move(model.id, "load"), { ...named(TEXT.load), ...moves }),
      is("ready", "loading") && button(TEXT.unload, () => this.#move(model.id, "unload"), { ...named(TEXT.unload), ...moves, class: "small danger" }));
  }

  async #move(id, what) {
    if (what === "unload" && !(await confirmed(TEXT.askUnload(id), TEXT.unload))) return;
    await attempt(async () => {
      announce(what === "load" ? TEXT.loadBegun(id) : TEXT.unloadBegun(id));
      await askAdmin(`models/${path(id)}/${what}`, { method: "POST" });
      if (what === "load") announce(TEXT.loadDone(id));
      await this.look();
      await this.#showAudit();
    });
  }

  #target(model, target, total, { engine, place }) {
    const words = TEXT.figures;
    const figures = [
      [words.running, number(target.in_flight)],
      target.in_flight_elsewhere > 0 && [words.elsewhere, number(target.in_flight_elsewhere)],
      target.waiting > 0 && [words.waiting, number(target.waiting)],
      [words.asked, number(target.attempts)],
      [words.errors, number(target.errors)],
      target.last_error && [words.last, target.last_error],
      target.first_content_seconds && [words.content, seconds(target.first_content_seconds)],
      target.whole_reply_seconds && [words.whole, seconds(target.whole_reply_seconds)],
    ];
    const share = total ? (target.requests ?? 0) / total : 0;
    const cools = target.cooling_seconds > 0;
    const named = (text) => ({ class: "small", "aria-label": `${text} ${target.id}` });
    // Who has drained a target is at what opens it again.
    const turns = { "data-place": `turn ${target.id}` };
    return element("li", { class: `target ${target.drained ? "drained" : cools ? "cools" : ""}` },
      element("div", { class: "name" },
        element("h5", {}, target.id),
        element("p", { class: "badges" },
          health(target),
          model.targets.length > 1 && badge(target.priority > 0 ? TEXT.standby(target.priority) : TEXT.weight(target.weight)),
          target.facts.shutdown && badge(ended(target.facts), isSoon(target.facts.shutdown) ? "bad" : ""),
          element("span", { class: "quiet" }, target.price ? TEXT.price(target.price) : TEXT.unpriced))),
      target.requests === null ? null
        : total ? bar(TEXT.shareOf(target.id, model.id), target.requests, total, TEXT.share(share, target.requests, target.failed), false)
        : element("p", { class: "quiet" }, TEXT.noTraffic),
      element("dl", { class: "numbers" }, ...figures.filter(Boolean).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
      (engine || place) && element("div", { class: "engine" }, place && placeFigures(place), engine && engineFigures(target, engine)),
      element("p", { class: "actions" },
        target.drained || cools
          ? button(TEXT.open, () => this.#turn(target.id, "open"), { ...named(TEXT.open), ...(target.drained ? turns : {}) })
          : null,
        target.drained ? null : button(TEXT.drain, () => this.#turn(target.id, "drain"), { ...named(TEXT.drain), ...turns, class: "small danger" }),
        button(TEXT.try, () => this.#try(target.id), named(TEXT.try))));
  }

  async #turn(id, what) {
    if (what === "drain" && !(await confirmed(TEXT.askDrain(id), TEXT.drain))) return;
    await attempt(async () => {
      await askAdmin(`targets/${path(id)}/${what}`, { method: "POST" });
      announce(what === "drain" ? TEXT.drainDone(id) : TEXT.openDone(id));
      await this.look();
      await this.#showAudit();
    });
  }

  #try(id) {
    const prompt = element("textarea", { rows: "3", required: true, value: TEXT.firstPrompt });
    const kind = element("select", {}, ...Object.entries(TEXT.kinds).map(([value, text]) => element("option", { value }, text)));
    const go = element("button", { class: "primary" }, TEXT.ask);
    const result = element("div", { role: "status" });
    const form = element("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        result.replaceChildren(element("p", { class: "quiet" }, TEXT.asking));
        try {
          const told = await askAdmin(`targets/${path(id)}/try`, { method: "POST", body: { prompt: prompt.value, kind: kind.value } });
          const time = seconds(told.seconds);
          result.replaceChildren(
            element("p", { class: told.ok ? "quiet" : "problem" }, told.ok ? TEXT.answered(time) : TEXT.refused(told.status, told.code, time)),
            element("pre", { class: "wrap", tabindex: "0", role: "region", "aria-label": TEXT.reply }, told.text));
        } catch (error) {
          if (!(error instanceof Failure)) throw error;
          result.replaceChildren(failure(error));
        }
        go.disabled = false;
        await this.#showAudit();
      },
    },
      labelled(TEXT.prompt, prompt), labelled(TEXT.kind, kind),
      element("p", { class: "row" }, go, button(TEXT.close, () => dialog.close())), result);
    const dialog = openDialog(TEXT.tryTitle(id), form);
  }

  async #showAudit() {
    let found;
    try {
      found = (await askAdmin("audit?limit=20", { signal: this.ended })).data;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.done.replaceChildren(failure(error));
      return;
    }
    this.done.replaceChildren(table(TEXT.audit, TEXT.auditHeads,
      found.map((deed) => [
        when(new Date(deed.time * 1000).toISOString()), deed.operator ? `${deed.operator} (${deed.client})` : deed.client,
        deed.action, deed.subject, deed.detail,
      ]),
      { empty: TEXT.nothingDone }));
  }
}

// Slashes stay: what a provider calls its models may have some.
const path = (id) => id.split("/").map(encodeURIComponent).join("/");

const isOf = (engine, target) => engine.provider === target.provider && engine.model === target.model && engine.place === target.place;

/** A model without what changes all the time and is not shown. */
const rounded = (model) => ({
  ...model,
  targets: model.targets.map((target) => ({ ...target, cooling_seconds: Math.ceil(target.cooling_seconds) })),
});

/** The same of where a model is. */
const settled = ({ idle_seconds, expires_seconds: left, ...place }) => ({ ...place, left: left === null ? null : Math.ceil(left) });

function health({ drained, cooling_seconds: cooling, recent_failures: failures }) {
  if (drained) return badge(TEXT.drained, "warn");
  if (cooling > 0) return badge(TEXT.cools(`${Math.ceil(cooling)} s`), "bad");
  return failures ? badge(TEXT.failed(failures), "warn") : badge(TEXT.well, "well");
}

function ended({ shutdown, successor }) {
  const text = new Date(shutdown) < serverNow() ? TEXT.ended(shutdown) : TEXT.ends(shutdown);
  return successor ? TEXT.instead(text, successor) : text;
}
const isSoon = (shutdown) => shutdown && new Date(shutdown) - serverNow() < SOON_DAYS * DAY_MS;

function facts(model) {
  const of = model.targets.map((target) => target.facts);
  const said = [
    model.context_length && TEXT.holds(model.context_length),
    model.output && TEXT.says(model.output),
    model.input && TEXT.reads(model.input),
    model.makes && TEXT.makes(model.makes),
    ...Object.entries(TEXT.abilities).map(([name, text]) => of.every((each) => each[name]) && text),
  ].filter(Boolean);
  return said.join(" · ") || TEXT.unknownFacts;
}

function open({ everybody, count, keys }) {
  if (everybody) return TEXT.everybody;
  return count ? TEXT.keys(count, keys) : TEXT.nobody;
}

/** From the model to each of its targets a line, as thick as its share of the traffic, or of the weights where there is none. */
function lines(model, total) {
  const { targets } = model;
  const first = Math.min(...targets.map(({ priority }) => priority));
  const weights = targets.reduce((sum, { priority, weight }) => sum + (priority === first ? weight : 0), 0);
  const height = 100 / targets.length;
  return drawn("svg", { class: "lines", viewBox: "0 0 40 100", preserveAspectRatio: "none", role: "img", "aria-label": TEXT.picture(model.id) },
    ...targets.map((target, place) => {
      const share = total ? (target.requests ?? 0) / total : target.priority === first && !target.drained ? target.weight / weights : 0;
      const to = height * (place + 0.5);
      const kind = target.drained ? "drained" : target.cooling_seconds > 0 ? "cools" : share > 0 ? "" : "idle";
      return drawn("path", { class: `line ${kind} w${Math.ceil(share * 5)}`, d: `M 0 50 C 20 50, 20 ${to}, 40 ${to}` });
    }));
}

/** Where a model is that shares memory, and for how long. */
function placeFigures({ state, sizes, waiting, loads, load_seconds: took, keep, expires_seconds: left }) {
  const words = TEXT.memoryFigures;
  const takes = Object.entries(sizes).map(([device, size]) => TEXT.takes(size, device)).join(", ");
  const figures = [
    [words.state, TEXT.states[state]],
    takes && [words.takes, takes],
    waiting > 0 && [words.waiting, number(waiting)],
    loads > 0 && [words.loads, took === null ? number(loads) : TEXT.loads(loads, took)],
    [words.keep, left === null ? keep : TEXT.keep(keep, Math.ceil(left))],
  ];
  return element("dl", { class: "numbers" }, ...figures.filter(Boolean).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** What an engine in this process, or one of a replica, does. */
function engineFigures(target, engine) {
  const words = TEXT.engine;
  const hits = engine.prompt_tokens ? `${number((engine.cached_tokens / engine.prompt_tokens) * 100)} %` : "–";
  const figures = [[words.running, number(engine.running)], [words.waiting, number(engine.waiting)], [words.cache, hits], [words.generated, number(engine.generated_tokens)], [words.preempted, number(engine.preempted)]];
  return element("div", { class: "engine-figures" },
    engine.total_blocks ? bar(words.blocksOf(target.id), engine.used_blocks, engine.total_blocks, words.blocks(engine.used_blocks, engine.total_blocks)) : null,
    element("dl", { class: "numbers" }, ...figures.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
}
