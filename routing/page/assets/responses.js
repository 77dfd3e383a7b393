// The same conversation in OpenAI's Responses API, which has words for the tools that the server runs.

import { Failure } from "./api.js";
import { Reply } from "./chat.js";
import { t } from "./strings.js";

export const RESPONSES_PATH = "v1/responses";

/** What chat completions know, and Responses do not. */
const UNFIT = ["seed", "presence_penalty", "frequency_penalty", "stop"];
const INCLUDED = ["web_search_call.action.sources", "file_search_call.results"];

/**
 * The tools of the server that a conversation's settings switch on, as the Responses API takes them.
 * @param {object} chosen `{web_search: true, file_search: [store ids], mcp: {label: {on, asks, allowed}}}`
 */
export function switchedOn(chosen = {}) {
  const tools = ["web_search", "web_fetch"].filter((type) => chosen[type]).map((type) => ({ type }));
  if (chosen.file_search?.length) tools.push({ type: "file_search", vector_store_ids: chosen.file_search });
  for (const [label, { on, asks, allowed }] of Object.entries(chosen.mcp ?? {})) {
    if (!on) continue;
    tools.push({ type: "mcp", server_label: label, require_approval: asks ? "always" : "never", ...(allowed && { allowed_tools: allowed }) });
  }
  return tools;
}

/**
 * The body of a request for a response.
 * @param {object} chat the same for chat completions.
 * @param {object[]} messages as the conversation keeps them.
 * @param {object[]} tools those of the server.
 * @throws {Failure} a setting has no words in this API.
 */
export function asResponse(chat, messages, tools) {
  const unfit = UNFIT.filter((name) => chat[name] !== undefined && chat[name].length !== 0);
  if (unfit.length) throw new Failure(t("responses.unfit", { names: unfit.join(", ") }));
  const { messages: sent, max_tokens: most, reasoning_effort: effort, logprobs, top_logprobs: top, response_format: format, tools: functions = [], stream_options, ...others } = chat;
  const body = { ...others, store: false, include: [...INCLUDED], input: messages.flatMap(itemsOf) };
  const [first] = sent;
  if (first?.role === "system") body.instructions = first.content;
  if (most !== undefined) body.max_output_tokens = most;
  if (effort) body.reasoning = { effort };
  if (logprobs) {
    body.top_logprobs = top;
    body.include.push("message.output_text.logprobs");
  }
  if (format) body.text = { format: format.json_schema ? { type: format.type, ...format.json_schema } : format };
  body.tools = [...functions.map(({ type, function: named, ...rest }) => ({ type, ...(named ?? {}), ...rest })), ...tools];
  return body;
}

function itemsOf({ role, content, tool_calls: calls = [], tool_call_id: id, items, approvals }) {
  if (role === "tool") return [{ type: "function_call_output", call_id: id, output: content }];
  if (role !== "assistant") return [{ type: "message", role, content: Array.isArray(content) ? content.map(partOf) : content }];
  if (items) return [...items.filter(({ type }) => type !== "mcp_list_tools"), ...Object.entries(approvals ?? {}).map(approvalOf)];
  const said = content ? [{ type: "message", role, content }] : [];
  return [...said, ...calls.map(({ id: call_id, function: { name, arguments: given } }) => ({ type: "function_call", call_id, name, arguments: given }))];
}

const approvalOf = ([approval_request_id, approve]) => ({ type: "mcp_approval_response", approval_request_id, approve });

function partOf(part) {
  if (part.type === "image_url") return { type: "input_image", image_url: part.image_url.url };
  if (part.type === "file") return { type: "input_file", ...part.file };
  return { type: "input_text", text: part.text };
}

/** The requests for the user's word in a message that have none yet. */
export const undecided = ({ items = [], approvals = {} }) =>
  items.filter(({ type, id }) => type === "mcp_approval_request" && !(id in approvals));

/** The reply that the events of a response add up to. */
export class ResponseReply extends Reply {
  #calls = new Map();
  #isOver = false;

  constructor(now) {
    super(now);
    this.message.items = [];
  }

  get isOver() {
    return this.#isOver;
  }

  take(event, now = performance.now()) {
    const { message } = this;
    const { items } = message;
    switch (event.type) {
      case "error":
        throw new Failure(event.message ?? event.error?.message ?? t("responses.failed"), event.error ?? event);
      case "response.failed":
        throw new Failure(event.response.error?.message ?? t("responses.failed"), event.response.error ?? {});
      case "response.output_item.added":
        // One message after another is another paragraph.
        if (event.item.type === "message" && message.content) message.content += "\n\n";
        this.#put(event);
        break;
      case "response.output_item.done":
        this.#put(event);
        break;
      case "response.output_text.delta":
        message.content += event.delta;
        message.logprobs.push(...(event.logprobs ?? []));
        this.#count(now);
        break;
      case "response.refusal.delta":
        message.content += event.delta;
        this.#count(now);
        break;
      case "response.reasoning_text.delta":
      case "response.reasoning_summary_text.delta":
        message.reasoning += event.delta;
        this.#count(now);
        break;
      case "response.function_call_arguments.delta":
        this.#calls.get(event.output_index).function.arguments += event.delta;
        this.#count(now);
        break;
      case "response.mcp_call_arguments.done":
        items[event.output_index] = { ...items[event.output_index], arguments: event.arguments };
        break;
      case "response.completed":
      case "response.incomplete":
        this.#end(event.response);
        break;
    }
  }

  #count(now) {
    this.first ??= now;
    this.last = now;
    this.pieces += 1;
  }

  #put({ output_index: at, item }) {
    this.message.items[at] = item;
    if (item.type !== "function_call") return;
    let call = this.#calls.get(at);
    if (!call) {
      call = { id: item.call_id, type: "function", function: { name: item.name, arguments: "" } };
      this.#calls.set(at, call);
      this.message.tool_calls.push(call);
    }
    // The end has all of them.
    if (item.arguments) call.function.arguments = item.arguments;
  }

  #end({ usage, output, incomplete_details: cut }) {
    this.#isOver = true;
    this.message.items = output ?? this.message.items.filter(Boolean);
    if (usage) this.usage = { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens };
    this.finishReason = cut?.reason ?? "stop";
  }
}
