// One model's side of a conversation.

import { Failure, ask, events } from "./api.js";
import * as branches from "./branches.js";
import { CHAT_PATH, Reply, requestOf } from "./chat.js";
import { announce, button, element, labelled } from "./dom.js";
import { failure } from "./failure.js";
import { textOf } from "./handover.js";
import { MessageView, shown } from "./message.js";
import { RESPONSES_PATH, ResponseReply, asResponse, switchedOn, undecided } from "./responses.js";
import { t } from "./strings.js";

/** How near the end counts as there, in pixels. */
const NEAR = 40;

/** The last message's calls that nobody has answered. */
const openCalls = (messages) => {
  const last = messages.at(-1);
  return last?.role === "assistant" ? (last.tool_calls ?? []) : [];
};

export class Column {
  /**
   * @param {{model: string, messages: object[]}} kept what the conversation keeps of it; written to.
   * @param {() => object} settings those of the conversation.
   * @param {() => void} onchange what is kept has changed, or it has begun or ended to answer.
   * @param {{place: number, others: string[], onleave: ?(column: Column) => void, onbranch: (column: Column, count: number) => void, reader: ?Reader}} where
   *   it stands, and the models beside it: its own is another if it has none yet; `onleave` takes it
   *   away, `onbranch` goes on from its first `count` messages elsewhere, `reader` reads them aloud.
   */
  constructor(kept, models, settings, onchange, { place = 0, others = [], onleave = null, onbranch = () => {}, reader = null } = {}) {
    Object.assign(this, { kept, settings, onchange, onbranch, reader });
    this.#aborter = null;
    this.choice = element(
      "select",
      { onchange: () => { this.kept.model = this.choice.value; this.onchange(); } },
      ...models.map((model) => element("option", { value: model }, model)),
    );
    this.choice.value = models.includes(kept.model) ? kept.model : (models.find((model) => !others.includes(model)) ?? models[0] ?? "");
    kept.model = this.choice.value;
    this.log = element("div", {
      class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": t("column.log", { place: place + 1 }),
      onscroll: () => this.#scrolled(),
    });
    this.toEnd = button(t("column.end"), () => this.#follow(), { class: "small to-end", hidden: true });
    this.leaving = onleave && button(t("column.remove"), () => onleave(this), { class: "small" });
    this.root = element(
      "section",
      { class: "column", "aria-label": t("column.side", { place: place + 1 }) },
      element("div", { class: "row" }, labelled(t("column.model"), this.choice), this.leaving),
      element("div", { class: "log-frame" }, this.log, this.toEnd),
    );
    this.#show();
  }

  #aborter;
  #streaming = Promise.resolve();

  get isBusy() {
    return this.#aborter !== null;
  }

  get messages() {
    return this.kept.messages;
  }

  /** What would be sent with these messages more. */
  request(more = []) {
    const settings = this.settings(), messages = [...this.messages, ...more];
    const body = requestOf(this.kept.model, settings, messages);
    const tools = switchedOn(settings.server_tools);
    return tools.length ? asResponse(body, messages, tools) : body;
  }

  #show() {
    this.log.replaceChildren(...this.messages.map((each, at) => shown(each, each.model, this.#actions(at), this.#decider(at))));
    this.#offerAnswers();
    requestAnimationFrame(() => this.#follow());
  }

  // Following ------------------------------------------------------------------------------------

  #follows = true;
  #top = 0;

  /** Whoever scrolls up reads there, and is left alone; whoever comes back to the end goes on with it. */
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.log;
    if (scrollTop < this.#top - 1) this.#follows = false;
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.#follows = true;
    this.#top = scrollTop;
    this.toEnd.hidden = this.#follows;
  }

  #follow() {
    this.#follows = true;
    this.#keepUp();
  }

  #keepUp() {
    if (this.#follows) this.#top = this.log.scrollTop = this.log.scrollHeight;
    this.toEnd.hidden = this.#follows;
  }

  // Versions -------------------------------------------------------------------------------------

  /** What can be done with the message at index `at`. */
  #actions(at) {
    const { role, content } = this.messages[at];
    const small = { class: "small" };
    return [
      role === "user" && button(t("message.edit"), () => this.#edit(at), small),
      role === "assistant" && button(t("message.regenerate"), () => this.#again(at), small),
      role === "assistant" && content &&
        button(t("message.branch"), () => this.onbranch(this, at + 1), { ...small, title: t("message.branchLong") }),
      role === "assistant" && content && this.reader?.offer(textOf(content)),
      ...this.#switcher(at),
    ].filter(Boolean);
  }

  #switcher(at) {
    const { count, active } = branches.versions(this.kept, at);
    if (count < 2) return [];
    const go = (place) => {
      if (this.isBusy) return;
      branches.choose(this.kept, at, place);
      this.#show();
      this.onchange();
      this.log.children[at]?.querySelector(".versions button:not(:disabled)")?.focus();
    };
    return [
      element(
        "span",
        { class: "versions", role: "group", "aria-label": t("message.versions") },
        button("‹", () => go(active - 1), { class: "small", disabled: active === 0, "aria-label": t("message.previous") }),
        element("span", {}, t("message.version", { place: active + 1, count })),
        button("›", () => go(active + 1), { class: "small", disabled: active === count - 1, "aria-label": t("message.next") }),
      ),
    ];
  }

  #again(at) {
    if (this.isBusy) return;
    branches.fork(this.kept, at);
    this.#show();
    this.#answer();
  }

  #edit(at) {
    if (this.isBusy) return;
    const message = this.messages[at];
    const field = element("textarea", { rows: "4", value: textOf(message.content) });
    const article = this.log.children[at];
    const body = article.querySelector(".body");
    const form = element(
      "form",
      {
        class: "answers",
        onsubmit: (event) => {
          event.preventDefault();
          if (this.isBusy || !field.value.trim()) return;
          const rest = Array.isArray(message.content) ? message.content.filter(({ type }) => type !== "text") : [];
          branches.fork(this.kept, at);
          this.messages.push({ role: "user", content: rest.length ? [{ type: "text", text: field.value }, ...rest] : field.value });
          this.#show();
          this.#answer();
        },
      },
      labelled(t("message.editing"), field),
      element("div", { class: "row" }, element("button", { class: "primary" }, t("message.send")), button(t("message.cancel"), () => this.#show())),
    );
    body.replaceWith(form);
    field.focus();
  }

  /** Send a message, and stream what is said to it. */
  async say(message) {
    const body = this.request([message]);
    this.#follows = true;
    this.#add(message);
    this.#streaming = this.#stream(body);
    await this.#streaming;
  }

  #add(message) {
    this.messages.push(message);
    this.log.append(shown(message, message.model, this.#actions(this.messages.length - 1)));
  }

  async #answer() {
    let body;
    try {
      body = this.request();
    } catch (error) {
      if (branches.dropEmpty(this.kept)) this.#show();
      this.#fail(error);
      return;
    }
    this.#streaming = this.#stream(body);
    await this.#streaming;
  }

  async #stream(body) {
    const view = new MessageView("assistant", body.model);
    const isResponse = body.input !== undefined;
    const reply = isResponse ? new ResponseReply() : new Reply();
    this.#aborter = new AbortController();
    this.log.append(view.root);
    this.log.setAttribute("aria-busy", "true");
    this.onchange();
    let frame = 0;
    const draw = () => {
      frame = 0;
      view.update(reply.message);
      this.#keepUp();
    };
    let failed = null, stopped = false, requestId = "";
    try {
      const response = await ask(isResponse ? RESPONSES_PATH : CHAT_PATH, { method: "POST", body, signal: this.#aborter.signal });
      requestId = response.headers.get("x-request-id") ?? "";
      for await (const chunk of events(response, () => reply.isOver)) {
        reply.take(chunk);
        frame ||= requestAnimationFrame(draw);
      }
    } catch (error) {
      if (error.name === "AbortError") stopped = true;
      else failed = error;
    }
    cancelAnimationFrame(frame);
    this.#aborter = null;
    this.log.setAttribute("aria-busy", "false");
    // One that breaks off says no more than that.
    if (failed instanceof Failure) failed.requestId ||= requestId;
    this.#end(view, reply, body, { failed, stopped, requestId });
  }

  #end(view, reply, body, { failed, stopped, requestId }) {
    const { message } = reply;
    // A call that was cut off can't be answered.
    const calls = failed || stopped ? [] : message.tool_calls.filter(Boolean);
    // Nor can items that have no end be sent again.
    if (message.items && (failed || stopped)) delete message.items;
    const hasContent = message.content || message.reasoning || calls.length || message.items?.length;
    const hasNothing = !hasContent && (failed || stopped);
    if (!hasNothing) {
      const kept = { ...message, tool_calls: calls, model: body.model, figures: { ...reply.figures, stopped, requestId } };
      if ((body.response_format ?? body.text) && kept.content) kept.isJSON = isJSON(kept.content);
      this.messages.push(kept);
      view.update(kept, true, this.#decider(this.messages.length - 1));
      view.finish(kept);
      view.offer(this.#actions(this.messages.length - 1));
    } else {
      view.root.remove();
      if (branches.dropEmpty(this.kept)) this.#show();
    }
    if (failed) this.#fail(failed);
    else if (hasNothing) this.#fail(new Failure(t("column.stoppedEarly")));
    else announce(stopped ? t("column.stopped") : t("column.answered", { model: body.model }));
    this.#offerAnswers();
    this.#keepUp();
    this.onchange();
  }

  #fail(error) {
    if (!(error instanceof Failure)) console.error(error);
    const isOpen = this.messages.at(-1)?.role !== "assistant";
    const box = failure(error, ...(isOpen ? [button(t("column.again"), () => { box.remove(); this.#answer(); })] : []));
    this.log.append(box);
  }

  /** What lets the user decide on the calls of the last message; the model goes on after the last. */
  #decider(at) {
    return at === this.messages.length - 1 ? (id, isAllowed) => this.#decide(at, id, isAllowed) : null;
  }

  #decide(at, id, isAllowed) {
    const message = this.messages[at];
    if (this.isBusy || at !== this.messages.length - 1) return;
    (message.approvals ??= {})[id] = isAllowed;
    this.#show();
    this.onchange();
    const left = this.log.children[at].querySelector(".asking button");
    if (left) left.focus();
    else this.#answer();
  }

  /** Have the client's part of calls done: a field for each result. */
  #offerAnswers() {
    const calls = openCalls(this.messages);
    if (!calls.length) return;
    const fields = calls.map((call) => element("textarea", { rows: "2", required: true, name: call.id }));
    const form = element(
      "form",
      {
        class: "answers",
        onsubmit: (event) => {
          event.preventDefault();
          form.remove();
          calls.forEach((call, place) => this.#add({ role: "tool", tool_call_id: call.id, content: fields[place].value }));
          this.#answer();
        },
      },
      ...calls.map((call, place) => labelled(t("column.result", { name: call.function.name, id: call.id }), fields[place])),
      element("button", {}, t(calls.length > 1 ? "column.sendResults" : "column.sendResult")),
    );
    this.log.append(form);
  }

  /** Why nothing can be said now; empty where something can. */
  get obstacle() {
    const waits = this.messages.length > 0 && undecided(this.messages.at(-1)).length > 0;
    return waits || openCalls(this.messages).length ? t("column.answerFirst") : "";
  }

  /** Leave the reply that is being streamed: its connection closes, which ends the work for it; kept is what there is. */
  async stop() {
    this.#aborter?.abort();
    await this.#streaming;
  }
}

function isJSON(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
