// Calls of tools that the server runs: as cards, and with buttons where the user has to let them run.

import { button, element } from "./dom.js";

const TEXT = {
  "web_search_call": "Web search",
  "open_page": "Web page",
  "file_search_call": "Search in files",
  "in_progress": "runs",
  "searching": "runs",
  "completed": "done",
  "failed": "failed",
  "incomplete": "broken off",
  "arguments": "Given to {name}",
  "result": "What {name} gave",
  "error": "What went wrong with {name}",
  "listing": "The tools of {name} are not there: {error}",
  "asks": "The model asks to call {name}",
  "asked": "asks for your word",
  "allowed": "you let it run",
  "refused": "you refused it",
  "allow": "Let it run",
  "refuse": "Refuse",
  "allowOf": "Let {name} run",
  "refuseOf": "Refuse {name}",
};

const say = (key, values = {}) => TEXT[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));

const CALLS = ["web_search_call", "file_search_call", "mcp_call", "mcp_approval_request"];

/** Cards that follow the items of a reply: one that is as it was stays, with its fold. */
export class HostedCalls {
  root = element("div", { class: "hosted" });
  #cards = new Map();

  update(items, approvals = {}, onDecide = null) {
    const cards = [];
    items.forEach((item, place) => {
      if (!item || !(CALLS.includes(item.type) || (item.type === "mcp_list_tools" && item.error))) return;
      const drawn = JSON.stringify([item, approvals[item.id], onDecide !== null]);
      let kept = this.#cards.get(place);
      if (kept?.drawn !== drawn) {
        const isOpen = kept?.card.open ?? false;
        kept = { drawn, card: cardOf(item, approvals[item.id], onDecide) };
        if (isOpen) kept.card.open = true;
        this.#cards.set(place, kept);
      }
      cards.push(kept.card);
    });
    // Only what is new is put in: what is there keeps its focus.
    if (cards.length !== this.root.children.length || cards.some((card, place) => this.root.children[place] !== card)) {
      this.root.replaceChildren(...cards);
    }
  }
}

const nameOf = ({ type, action, server_label: label, name }) =>
  label ? `${label}: ${name}` : say(action?.type === "open_page" ? "open_page" : type);

function cardOf(item, decision, onDecide) {
  if (item.type === "mcp_list_tools") {
    return element("p", { class: "call problem" }, say("listing", { name: item.server_label, error: wordsOf(item.error) }));
  }
  const name = nameOf(item);
  if (item.type === "mcp_approval_request" && decision === undefined && onDecide) return question(item, name, onDecide);
  const isAsked = item.type === "mcp_approval_request";
  const state = isAsked ? (decision === undefined ? "asked" : decision ? "allowed" : "refused") : item.status;
  const failed = wordsOf(item.error);
  const gave = gaveOf(item);
  return element(
    "details",
    { class: `call${failed || state === "failed" ? " failed" : ""}` },
    element("summary", {}, element("strong", {}, name), " ", givenOf(item).replace(/\s+/g, " ").slice(0, 80), " ", element("span", { class: "state" }, TEXT[state] ? say(state) : (state ?? ""))),
    text(say("arguments", { name }), givenOf(item)),
    failed && text(say("error", { name }), failed),
    gave && text(say("result", { name }), gave),
  );
}

const text = (label, words) => element("pre", { tabindex: "0", role: "region", "aria-label": label }, words);

function question(item, name, onDecide) {
  return element(
    "div",
    { class: "call asking", role: "group", "aria-label": say("asks", { name }) },
    element("p", {}, say("asks", { name })),
    text(say("arguments", { name }), givenOf(item)),
    element(
      "p",
      { class: "row" },
      button(say("allow"), () => onDecide(item.id, true), { "aria-label": say("allowOf", { name }) }),
      button(say("refuse"), () => onDecide(item.id, false), { "aria-label": say("refuseOf", { name }) }),
    ),
  );
}

function givenOf({ arguments: given, action, queries }) {
  if (given !== undefined) {
    try {
      return JSON.stringify(JSON.parse(given), null, 2);
    } catch {
      return String(given ?? "");
    }
  }
  return String(action?.query ?? action?.url ?? (Array.isArray(queries) ? queries.join("\n") : ""));
}

function gaveOf({ output, action, results }) {
  if (typeof output === "string") return output;
  if (Array.isArray(action?.sources)) return action.sources.map((each) => each?.url).join("\n");
  return Array.isArray(results) ? results.map((each) => `${each?.filename}\n${each?.text}`).join("\n\n") : "";
}

const wordsOf = (error) => (typeof error === "string" || !error ? (error ?? "") : (error.message ?? error.content ?? JSON.stringify(error)));
