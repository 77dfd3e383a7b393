// A conversation as a file, and a file as a conversation.

import * as conversations from "./conversations.js";
import { element } from "./dom.js";
import { textOf } from "./handover.js";
import { t } from "./strings.js";

const KIND = "llama_compat.conversation";
const MOST_SIDES = 4;
const ROLES = ["user", "assistant", "tool", "system"];

/** All of it, with every version of every message. */
export const asJSON = ({ title, settings, columns }) =>
  JSON.stringify({ kind: KIND, version: 1, title, settings, columns }, null, 2);

/** What is shown of it, to be read. */
export function asMarkdown({ title, columns }) {
  const sides = columns.map(({ model, messages }) =>
    [
      columns.length > 1 ? `## ${model}` : "",
      ...messages.map((message) => `**${message.model ?? t(`message.${message.role}`)}:**\n\n${textOf(message.content)}`),
    ].filter(Boolean).join("\n\n"));
  return `# ${title}\n\n${sides.join("\n\n---\n\n")}\n`;
}

/** Have the browser keep a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/**
 * A conversation of what `asJSON` made.
 * @throws {TypeError} it is something else.
 */
export function read(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new TypeError(t("playground.notOurs"));
  }
  const isOurs = found?.kind === KIND && Array.isArray(found.columns) && found.columns.length > 0 && found.columns.length <= MOST_SIDES && found.columns.every(isBranch);
  if (!isOurs) throw new TypeError(t("playground.notOurs"));
  const columns = found.columns.map(({ model, messages, forks = [] }) => ({ model: String(model ?? ""), messages, forks }));
  return { ...conversations.fresh(), title: String(found.title ?? ""), settings: isObject(found.settings) ? found.settings : {}, columns };
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// A file may come from anybody: what is shown and sent later is looked at here.
function isBranch({ messages, forks = [] }) {
  return Array.isArray(messages) && messages.every(isMessage) && Array.isArray(forks) && forks.every(isFork);
}

const isFork = (fork) =>
  isObject(fork) && Number.isInteger(fork.at) && Array.isArray(fork.tails) && fork.tails[fork.active] === null &&
  fork.tails.every((tail, place) => (place === fork.active ? tail === null : isObject(tail) && isBranch(tail)));

function isMessage(message) {
  if (!isObject(message) || !ROLES.includes(message.role)) return false;
  const { content, tool_calls: calls = [], figures, logprobs = [], items = [], approvals = {} } = message;
  const isContent = content === undefined || content === null || typeof content === "string" || (Array.isArray(content) && content.every(isPart));
  const areCalls = Array.isArray(calls) && calls.every((call) => typeof call?.function?.name === "string" && typeof call.function.arguments === "string");
  const areProbable = Array.isArray(logprobs) && logprobs.every((each) => typeof each?.token === "string" && typeof each.logprob === "number" && Array.isArray(each.top_logprobs ?? []));
  const areItems = Array.isArray(items) && items.every((item) => isObject(item) && typeof item.type === "string") && isObject(approvals);
  return isContent && areCalls && areItems && areProbable && (figures === undefined || areFigures(figures));
}

const areFigures = (figures) =>
  isObject(figures) && /^[!-~]{0,128}$/.test(figures.requestId ?? "") && ["firstToken", "tokensPerSecond", "tokens", "promptTokens"].every((name) => [null, undefined].includes(figures[name]) || typeof figures[name] === "number");

function isPart(part) {
  if (!isObject(part)) return false;
  if (part.type === "text") return typeof part.text === "string";
  if (part.type === "image_url") return /^data:image\//.test(part.image_url?.url ?? "");
  if (part.type === "input_audio") return ["wav", "mp3"].includes(part.input_audio?.format) && /^[A-Za-z0-9+/=]*$/.test(part.input_audio.data);
  return part.type === "file" && isObject(part.file);
}
