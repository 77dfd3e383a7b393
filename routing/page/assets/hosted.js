// Calls of tools that the server runs: as cards, and with buttons where the user has to let them run.

import { button, element } from "./dom.js";
import { t } from "./strings.js";

const NAMES = { web_search_call: "hosted.webSearch", open_page: "hosted.webPage", file_search_call: "hosted.fileSearch" };

const STATES = {
  in_progress: "hosted.runs",
  searching: "hosted.runs",
  completed: "hosted.done",
  failed: "hosted.failed",
  incomplete: "hosted.brokenOff",
  asked: "hosted.asked",
  allowed: "hosted.allowed",
  refused: "hosted.refused",
};

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
  label ? `${label}: ${name}` : t(NAMES[action?.type === "open_page" ? "open_page" : type]);

function cardOf(item, decision, onDecide) {
  if (item.type === "mcp_list_tools") {
    return element("p", { class: "call problem" }, t("hosted.listing", { name: item.server_label, error: wordsOf(item.error) }));
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
    element("summary", {}, element("strong", {}, name), " ", givenOf(item).replace(/\s+/g, " ").slice(0, 80), " ", element("span", { class: "state" }, state in STATES ? t(STATES[state]) : String(state ?? ""))),
    text(t("hosted.given", { name }), givenOf(item)),
    failed && text(t("hosted.error", { name }), failed),
    gave && text(t("hosted.result", { name }), gave),
  );
}

const text = (label, words) => element("pre", { tabindex: "0", role: "region", "aria-label": label }, words);

function question(item, name, onDecide) {
  return element(
    "div",
    { class: "call asking", role: "group", "aria-label": t("hosted.asks", { name }) },
    element("p", {}, t("hosted.asks", { name })),
    text(t("hosted.given", { name }), givenOf(item)),
    element(
      "p",
      { class: "row" },
      button(t("hosted.allow"), () => onDecide(item.id, true), { "aria-label": t("hosted.allowOf", { name }) }),
      button(t("hosted.refuse"), () => onDecide(item.id, false), { "aria-label": t("hosted.refuseOf", { name }) }),
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
