// A request that was recorded, on its way into the playground.

import { NUMBERS } from "./chat.js";
import * as conversations from "./conversations.js";

const KEY = "llama-compat-handover";

/**
 * Have the playground begin with a conversation, and go there.
 * @param {object} chat a request in the words of OpenAI's chat completions.
 * @param {boolean} beside whether another model is to be asked beside its own.
 */
export function handOver(chat, { beside = false } = {}) {
  sessionStorage.setItem(KEY, JSON.stringify({ chat, beside }));
  location.hash = "#/playground";
}

/** The conversation that was handed over, once; null if none was. */
export function handedOver() {
  const given = sessionStorage.getItem(KEY);
  if (!given) return null;
  sessionStorage.removeItem(KEY);
  const { chat, beside } = JSON.parse(given);
  const conversation = conversations.fresh();
  const system = chat.messages.filter(({ role }) => role === "system" || role === "developer");
  const messages = chat.messages.filter((message) => !system.includes(message)).map(asKept);
  conversation.settings = settingsOf(chat, system.map(({ content }) => textOf(content)).join("\n\n"));
  conversation.columns = [{ model: chat.model, messages }];
  if (beside) conversation.columns.push({ model: "", messages: structuredClone(messages) });
  return conversation;
}

/** A message in the form that the playground keeps. */
export function asKept({ reasoning_content: reasoning, ...message }) {
  return reasoning ? { ...message, reasoning } : message;
}

export const textOf = (content) =>
  Array.isArray(content) ? content.filter(({ type }) => type === "text").map(({ text }) => text).join("\n") : (content ?? "");

function settingsOf(chat, system) {
  const settings = system ? { system } : {};
  for (const { name } of NUMBERS) if (chat[name] !== undefined) settings[name] = chat[name];
  if (chat.max_completion_tokens !== undefined) settings.max_tokens = chat.max_completion_tokens;
  if (chat.stop) settings.stop = [chat.stop].flat().join("\n");
  if (chat.reasoning_effort) settings.reasoning_effort = chat.reasoning_effort;
  if (chat.tools) settings.tools = JSON.stringify(chat.tools, null, 2);
  const format = chat.response_format;
  if (format) settings.format = format.type;
  if (format?.json_schema?.schema) settings.schema = JSON.stringify(format.json_schema.schema, null, 2);
  return settings;
}
