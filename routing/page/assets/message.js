// How a message looks: text, thoughts, calls, images, and how sure the model was of each token.

import { announce, button, copy, element } from "./dom.js";
import { requestLink } from "./failure.js";
import { number, seconds } from "./formats.js";
import { HostedCalls } from "./hosted.js";
import { Markdown } from "./markdown.js";
import { t } from "./strings.js";

const ROLES = ["user", "assistant", "tool"];

/** A message that is there; `actions` are buttons below it, `onDecide` hears what the user lets run. */
export function shown(message, model, actions = [], onDecide = null) {
  const view = new MessageView(message.role, model);
  view.update(message, true, onDecide);
  if (message.figures) view.finish(message);
  view.offer(actions);
  return view.root;
}

/** A message that grows: `update` with all of it so far, `finish` with what is known at its end. */
export class MessageView {
  #text = null;
  #thoughts = null;
  #hosted = new HostedCalls();
  #calls = element("div", { class: "calls" });
  #body = element("div", { class: "body" });
  #foot = element("p", { class: "figures" });
  #actions = element("div", { class: "row actions" });
  #markdown = null;

  constructor(role, model) {
    const who = role === "assistant" && model ? model : t(`message.${ROLES.includes(role) ? role : "user"}`);
    if (role === "assistant") this.#markdown = new Markdown();
    this.root = element(
      "article",
      { class: `message ${role}`, "aria-label": who },
      element("p", { class: "who" }, who),
      this.#hosted.root,
      this.#body,
      this.#calls,
      this.#foot,
      this.#actions,
    );
  }

  /** Put buttons below it. */
  offer(actions) {
    this.#actions.replaceChildren(...actions);
  }

  update({ content, reasoning, tool_calls: calls, items, approvals }, isWhole = false, onDecide = null) {
    if (items) this.#hosted.update(items, approvals, onDecide);
    if (reasoning) this.#think(reasoning);
    const parts = Array.isArray(content) ? content : [{ type: "text", text: content ?? "" }];
    const text = parts.filter((part) => part.type === "text").map((part) => part.text).join("\n");
    if (text) this.#say(text, isWhole);
    if (Array.isArray(content) && !this.#body.querySelector(":scope > img, :scope > .file, :scope > audio")) {
      const images = parts.filter((part) => part.type === "image_url");
      this.#body.append(...images.map((part, place) => element("img", { src: part.image_url.url, alt: t("message.image", { place: place + 1 }) })));
      const sounds = parts.filter((part) => part.type === "input_audio");
      this.#body.append(...sounds.map((part, place) => soundOf(part.input_audio, t("message.sound", { place: place + 1 }))));
      const files = parts.filter((part) => part.type === "file");
      this.#body.append(...files.map((part) => element("p", { class: "file quiet" }, t("message.file", { name: part.file.filename ?? "" }))));
    }
    if (calls?.length) this.#calls.replaceChildren(...calls.map(callCard));
  }

  // Text nodes are changed rather than made again: long streams stay cheap, a selection stays.
  #say(text, isWhole) {
    if (this.#markdown) {
      if (!this.#markdown.root.parentNode) this.#body.append(this.#markdown.root);
      this.#markdown.update(text, isWhole);
      return;
    }
    if (this.#text === null) {
      this.#text = document.createTextNode("");
      this.#body.append(element("div", { class: "text" }, this.#text));
    }
    grow(this.#text, text);
  }

  #think(text) {
    if (this.#thoughts === null) {
      this.#thoughts = document.createTextNode("");
      this.#body.prepend(
        element("details", { class: "reasoning" }, element("summary", {}, t("message.reasoning")), element("div", { class: "text" }, this.#thoughts)),
      );
    }
    grow(this.#thoughts, text);
  }

  /** Show the figures, and its tokens in colours where their probabilities are known. */
  finish(message) {
    const { logprobs, content, figures, isJSON } = message;
    this.#foot.replaceChildren(
      ...words(figures, isJSON).map((each) => element("span", {}, each)),
      figures.requestId ? requestLink(figures.requestId, t("message.request")) : "",
      content ? button(t("common.copy"), () => copy(content), { class: "small" }) : "",
    );
    if (logprobs?.length) this.#body.querySelector(":scope > .text")?.replaceWith(tokens(logprobs));
  }
}

const TYPES = { wav: "audio/wav", mp3: "audio/mpeg" };

/** Something to play it with. */
function soundOf({ data, format }, name) {
  return element("audio", { controls: true, preload: "none", src: `data:${TYPES[format]};base64,${data}`, "aria-label": name });
}

function grow(node, text) {
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}

function words({ firstToken, tokensPerSecond, tokens: count, counted, promptTokens, finishReason, stopped }, isJSON) {
  return [
    firstToken !== null && t("message.first", { time: seconds(firstToken) }),
    tokensPerSecond !== null && t("message.speed", { rate: number(tokensPerSecond, 1) }),
    t(counted ? "message.tokens" : "message.about", { count: number(count) }),
    promptTokens !== null && t("message.prompt", { count: number(promptTokens) }),
    stopped ? t("message.stopped") : finishReason && t("message.finish", { reason: finishReason }),
    isJSON === true && t("message.isJSON"),
    isJSON === false && t("message.noJSON"),
  ].filter(Boolean);
}

function callCard({ id, function: { name, arguments: given } }) {
  let pretty = given;
  try {
    pretty = JSON.stringify(JSON.parse(given), null, 2);
  } catch {
    // Not all there yet, or no JSON: it is shown as it is.
  }
  return element(
    "div",
    { class: "call", role: "group", "aria-label": t("message.call", { name }) },
    element("p", {}, t("message.calls"), " ", element("strong", {}, name), " ", element("code", {}, id)),
    element("pre", { tabindex: "0" }, pretty),
  );
}

const LEVELS = [0.9, 0.7, 0.4, 0.15];
const level = (probability) => LEVELS.findIndex((least) => probability >= least);
const percent = (logprob) => `${number(Math.exp(logprob) * 100, 2)} %`;

/** Tokens in colours; the arrow keys or the pointer choose one, of which the line below tells. */
function tokens(logprobs) {
  const told = element("p", { class: "chosen", "aria-live": "off" }, t("message.choose"));
  const spans = logprobs.map(({ token, logprob }, place) => {
    const found = level(Math.exp(logprob));
    return element("span", { class: `token p${found < 0 ? LEVELS.length : found}`, onpointerenter: () => choose(place) }, token);
  });
  let chosen = -1;
  function choose(place) {
    spans[chosen]?.classList.remove("on");
    chosen = Math.max(0, Math.min(spans.length - 1, place));
    spans[chosen].classList.add("on");
    const { token, logprob, top_logprobs: others = [] } = logprobs[chosen];
    const rest = others.filter((other) => other.token !== token).map((other) => `${JSON.stringify(other.token)} ${percent(other.logprob)}`);
    told.textContent = `${JSON.stringify(token)} ${percent(logprob)}${rest.length ? t("message.else", { others: rest.join(", ") }) : ""}`;
  }
  const moves = { ArrowRight: 1, ArrowLeft: -1 };
  const text = element(
    "div",
    {
      class: "text tokens",
      tabindex: "0",
      role: "group",
      "aria-label": t("message.sure"),
      onkeydown: (event) => {
        if (!(event.key in moves)) return;
        event.preventDefault();
        choose(chosen + moves[event.key]);
        announce(told.textContent);
      },
    },
    ...spans,
  );
  return element("div", {}, text, told);
}
