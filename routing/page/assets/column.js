// One model's side of a conversation.

import { Failure, ask, events } from "./api.js";
import { CHAT_PATH, Reply, requestOf } from "./chat.js";
import { announce, button, element, labelled } from "./dom.js";
import { MessageView, shown } from "./message.js";

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
   * @param {{place: number, other: string}} where it stands, and the model beside it: its own is another if it has none yet.
   */
  constructor(kept, models, settings, onchange, { place = 0, other = "" } = {}) {
    Object.assign(this, { kept, settings, onchange });
    this.#aborter = null;
    this.choice = element(
      "select",
      { onchange: () => { this.kept.model = this.choice.value; this.onchange(); } },
      ...models.map((model) => element("option", { value: model }, model)),
    );
    this.choice.value = models.includes(kept.model) ? kept.model : (models.find((model) => model !== other) ?? models[0] ?? "");
    kept.model = this.choice.value;
    this.log = element("div", { class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": `Conversation ${place + 1}` });
    this.root = element("section", { class: "column", "aria-label": `Side ${place + 1}` }, labelled("Model", this.choice), this.log);
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
    return requestOf(this.kept.model, this.settings(), [...this.messages, ...more]);
  }

  #show() {
    this.log.replaceChildren(...this.messages.map((each) => shown(each, each.model)));
    this.#offerAnswers();
    requestAnimationFrame(() => { this.log.scrollTop = this.log.scrollHeight; });
  }

  /** Send a message, and stream what is said to it. */
  async say(message) {
    const body = this.request([message]);
    this.#add(message);
    this.#streaming = this.#stream(body);
    await this.#streaming;
  }

  #add(message) {
    this.messages.push(message);
    this.log.append(shown(message));
  }

  async #answer() {
    let body;
    try {
      body = this.request();
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#streaming = this.#stream(body);
    await this.#streaming;
  }

  async #stream(body) {
    const view = new MessageView("assistant", body.model);
    const reply = new Reply();
    this.#aborter = new AbortController();
    this.log.append(view.root);
    this.log.setAttribute("aria-busy", "true");
    this.onchange();
    let frame = 0;
    const draw = () => {
      frame = 0;
      const isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
      view.update(reply.message);
      if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
    };
    let failure = null, stopped = false;
    try {
      const response = await ask(CHAT_PATH, { method: "POST", body, signal: this.#aborter.signal });
      for await (const chunk of events(response)) {
        reply.take(chunk);
        frame ||= requestAnimationFrame(draw);
      }
    } catch (error) {
      if (error.name === "AbortError") stopped = true;
      else failure = error;
    }
    cancelAnimationFrame(frame);
    this.#aborter = null;
    this.log.setAttribute("aria-busy", "false");
    this.#end(view, reply, body, { failure, stopped });
  }

  #end(view, reply, body, { failure, stopped }) {
    const { message } = reply;
    // A call that was cut off can't be answered.
    const calls = failure || stopped ? [] : message.tool_calls.filter(Boolean);
    const hasContent = message.content || message.reasoning || calls.length;
    const hasNothing = !hasContent && (failure || stopped);
    if (!hasNothing) {
      const kept = { ...message, tool_calls: calls, model: body.model, figures: { ...reply.figures, stopped } };
      if (body.response_format && kept.content) kept.isJSON = isJSON(kept.content);
      this.messages.push(kept);
      view.update(kept);
      view.finish(kept);
    } else {
      view.root.remove();
    }
    if (failure) this.#fail(failure);
    else if (hasNothing) this.#fail(new Failure("Stopped before the first token."));
    else announce(stopped ? "Stopped" : `${body.model} has answered`);
    this.#offerAnswers();
    this.log.scrollTop = this.log.scrollHeight;
    this.onchange();
  }

  #fail(error) {
    if (!(error instanceof Failure)) console.error(error);
    const box = element(
      "div",
      { class: "failure", role: "alert" },
      element("p", {}, error.message),
      error.requestId && element("p", { class: "quiet" }, "Request ", element("code", {}, error.requestId)),
      this.messages.at(-1)?.role !== "assistant" && button("Try again", () => { box.remove(); this.#answer(); }),
    );
    this.log.append(box);
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
      ...calls.map((call, place) => labelled(`Result of ${call.function.name} (${call.id})`, fields[place])),
      element("button", {}, calls.length > 1 ? "Send results" : "Send result"),
    );
    this.log.append(form);
  }

  /** Why nothing can be said now; empty where something can. */
  get obstacle() {
    return openCalls(this.messages).length ? "Answer the calls first." : "";
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
