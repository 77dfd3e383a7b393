// Calls of this server, with keys that live as long as the tab.

import { WORDS } from "./strings.js";

/** A `Date` header has whole seconds, and is on its way for a moment. */
const CLOCK_SLACK_MS = 3000;
let serverAhead = 0;

/** The time as the server has it, in milliseconds since 1970: what it tells of was then, by its own clock. */
export const serverNow = () => Date.now() + serverAhead;

function setClock(date) {
  const ahead = Date.parse(date) - Date.now();
  if (!Number.isNaN(ahead)) serverAhead = Math.abs(ahead) > CLOCK_SLACK_MS ? ahead : 0;
}

/** What a server or the network says went wrong. */
export class Failure extends Error {
  constructor(message, { status = 0, code = "", requestId = "" } = {}) {
    super(message);
    Object.assign(this, { status, code, requestId });
  }
}

// sessionStorage is this tab's alone, and is gone with it.
export const apiKey = stored("llama-compat-api-key");
export const adminKey = stored("llama-compat-admin-key");
/** Who has the admin key, by their own word: it is in the record of what was done. */
export const operator = stored("llama-compat-operator");

function stored(name) {
  return {
    get: () => sessionStorage.getItem(name) ?? "",
    set: (value) => (value ? sessionStorage.setItem(name, value) : sessionStorage.removeItem(name)),
  };
}

/**
 * Ask the server; its reply once it is known to be no error.
 * @throws {Failure}
 * @throws {DOMException} `AbortError`, by `signal`.
 */
export async function ask(path, { key = apiKey, method = "GET", body, signal, headers: more = {} } = {}) {
  const headers = { ...more };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  // A header holds no other letters than those of ASCII.
  if (key === adminKey && operator.get()) headers["x-llama-compat-operator"] = encodeURIComponent(operator.get());
  // A form says itself where its parts end.
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined || isForm ? body : JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(WORDS.api.unreachable);
  }
  setClock(response.headers.get("date"));
  if (!response.ok) throw await failureOf(response);
  return response;
}

export const askAdmin = async (path, options = {}) => (await ask(`admin/${path}`, { ...options, key: adminKey })).json();

async function failureOf(response) {
  const more = { status: response.status, requestId: response.headers.get("x-request-id") ?? "" };
  const text = await response.text();
  try {
    const { message, code } = JSON.parse(text).error;
    return new Failure(message, { ...more, code });
  } catch {
    return new Failure(text || `HTTP ${response.status}`, more);
  }
}

/** The data of each server-sent event of a response, until `[DONE]`, or an end of which `isOver` knows. */
export async function* events(response, isOver = () => false) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const blocks = (rest + (value ?? "")).split(/\r?\n\r?\n/);
      rest = done ? "" : blocks.pop();
      for (const block of blocks) {
        const data = block
          .split(/\r?\n/)
          .filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).trimStart())
          .join("\n");
        if (data === "[DONE]") return;
        if (data) yield JSON.parse(data);
      }
      if (done && isOver()) return;
      if (done) throw new Failure(WORDS.api.brokenOff);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
