// What is sent for a conversation, and what a stream makes of a reply.

import { Failure } from "./api.js";
import { t } from "./strings.js";

export const CHAT_PATH = "v1/chat/completions";

/** Numbers that are sent as they are where they are set. */
export const NUMBERS = [
  { name: "temperature", min: 0, max: 2, step: 0.1 },
  { name: "top_p", min: 0, max: 1, step: 0.05 },
  { name: "max_tokens", min: 1, step: 1 },
  { name: "seed", step: 1 },
  { name: "presence_penalty", min: -2, max: 2, step: 0.1 },
  { name: "frequency_penalty", min: -2, max: 2, step: 0.1 },
];

const TOP_LOGPROBS = 5;

/** What came within less says nothing of how fast more would. */
const LEAST_SECONDS = 0.02;

/**
 * The body of a request.
 * @throws {Failure} a setting is no JSON, or of the wrong kind; the message says which.
 */
export function requestOf(model, settings, messages) {
  const system = settings.system?.trim() ? [{ role: "system", content: settings.system }] : [];
  const body = { model, messages: [...system, ...messages.filter(saysSomething).map(onTheWire)], stream: true, stream_options: { include_usage: true } };
  for (const { name } of NUMBERS) {
    if (settings[name] !== undefined && settings[name] !== "") body[name] = Number(settings[name]);
  }
  if (settings.stop) body.stop = settings.stop.split("\n").filter(Boolean);
  if (settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: TOP_LOGPROBS });
  if (settings.tools?.trim()) body.tools = parsed("chat.tools", settings.tools, Array.isArray, "chat.list");
  if (settings.format === "json_object") body.response_format = { type: "json_object" };
  if (settings.format === "json_schema") {
    const schema = parsed("chat.schema", settings.schema ?? "", isObject, "chat.object");
    body.response_format = { type: "json_schema", json_schema: { name: "reply", strict: true, schema } };
  }
  if (settings.more?.trim()) Object.assign(body, parsed("chat.more", settings.more, isObject, "chat.object"));
  return body;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(name, text, isRight, kind) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Failure(t("chat.noJSON", { name: t(name), problem: error.message }));
  }
  if (!isRight(value)) throw new Failure(t("chat.hasToBe", { name: t(name), kind: t(kind) }));
  return value;
}

/** Thoughts alone, of a reply that was stopped, are nothing that a vendor takes back. */
const saysSomething = ({ role, content, tool_calls }) => role !== "assistant" || content || tool_calls?.length;

/** A message without what only this page knows of it. */
function onTheWire({ role, content, tool_calls, tool_call_id }) {
  const message = { role, content: content === "" && tool_calls?.length ? null : content };
  if (tool_calls?.length) message.tool_calls = tool_calls;
  if (tool_call_id) message.tool_call_id = tool_call_id;
  return message;
}

/** The reply that a stream's chunks add up to, with times in milliseconds. */
export class Reply {
  constructor(now = performance.now()) {
    this.begun = now;
    this.first = this.last = null;
    this.pieces = 0;
    this.message = { role: "assistant", content: "", reasoning: "", tool_calls: [], logprobs: [] };
    this.usage = null;
    this.finishReason = null;
  }

  /** @throws {Failure} the chunk is an error. */
  take(chunk, now = performance.now()) {
    if (chunk.error) throw new Failure(chunk.error.message, chunk.error);
    if (chunk.usage) this.usage = chunk.usage;
    const [choice] = chunk.choices ?? [];
    if (!choice) return;
    const delta = choice.delta ?? {};
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    const text = (delta.content ?? "") + (delta.refusal ?? "");
    if (reasoning || text || delta.tool_calls?.length) {
      this.first ??= now;
      this.last = now;
      this.pieces += 1;
    }
    this.message.reasoning += reasoning;
    this.message.content += text;
    for (const call of delta.tool_calls ?? []) this.#takeCall(call);
    this.message.logprobs.push(...(choice.logprobs?.content ?? []));
    if (choice.finish_reason) this.finishReason = choice.finish_reason;
  }

  #takeCall({ index = 0, id, function: called = {} }) {
    const call = (this.message.tool_calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (id) call.id = id;
    call.function.name += called.name ?? "";
    call.function.arguments += called.arguments ?? "";
  }

  /** Whether it may end here; a chat completion ends by a word of its own. */
  get isOver() {
    return false;
  }

  /** How fast it was: in seconds, and tokens a second once there are two of them. */
  get figures() {
    const tokens = this.usage?.completion_tokens ?? this.pieces;
    const streaming = this.first === null ? 0 : (this.last - this.first) / 1000;
    return {
      firstToken: this.first === null ? null : (this.first - this.begun) / 1000,
      tokensPerSecond: tokens > 1 && streaming >= LEAST_SECONDS ? (tokens - 1) / streaming : null,
      tokens,
      counted: this.usage !== null,
      promptTokens: this.usage?.prompt_tokens ?? null,
      finishReason: this.finishReason,
    };
  }
}
