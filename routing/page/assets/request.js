// One request: what became of it, when, what was said, and as code; and again in the playground.

import { explain } from "./admin.js";
import { askAdmin } from "./api.js";
import { drawn } from "./chart.js";
import { button, copy, element, labelled, openDialog, table } from "./dom.js";
import { badge } from "./figures.js";
import { dateTime, dollars, number, seconds } from "./formats.js";
import { asKept, handOver } from "./handover.js";
import { shown } from "./message.js";
import { snippets } from "./snippets.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.request;

const WIDTH = 1000, ROW = 22;

/** Show the request `requestId` in `main`. */
export async function oneRequest(main, requestId, ended) {
  let told;
  try {
    told = await askAdmin(`requests/${encodeURIComponent(requestId)}`, { signal: ended });
  } catch (error) {
    if (!ended.aborted) explain(main, TEXT.title, error, () => oneRequest(main, requestId, ended));
    return;
  }
  const [record] = told.data;
  main.replaceChildren(
    element(
      "div",
      { class: "row head" },
      element("h2", {}, `${TEXT.title} `, element("code", {}, record.request_id)),
      ...(told.chat ? [
        button(TEXT.replay, () => handOver(told.chat), { class: "primary" }),
        button(TEXT.beside, () => handOver(told.chat, { beside: true })),
        button(TEXT.code, () => showCode(told.chat)),
      ] : []),
      element("a", { href: "#/requests" }, TEXT.all),
    ),
    ...(told.data.length > 1 ? [element("p", { class: "quiet" }, TEXT.several(told.data.length))] : []),
    facts(record, told.names),
    timeline(record),
    ...(told.chat ? [conversation(told)] : []),
    headers(told),
    bodies(told),
  );
}

function facts(record, names) {
  const words = TEXT.names;
  const told = [
    [words.status, badge(record.status, record.status >= 400 ? "bad" : "well")],
    [words.error, record.error],
    [words.message, record.message],
    [words.time, dateTime(record.time)],
    [words.model, record.model],
    [words.target, record.target],
    [words.served, record.served],
    [words.key, names[record.key] ?? record.key],
    [words.api, [record.api, record.operation, record.stream ? TEXT.streamed : "", record.cancelled ? TEXT.cancelled : ""].filter(Boolean).join(" ")],
    [words.finish, record.finish_reason],
    [words.tokens, record.input_tokens === null ? null : `${number(record.input_tokens)}${record.estimated ? ` (${TEXT.estimated})` : ""}`],
    [words.output, record.output_tokens === null ? null : number(record.output_tokens)],
    [words.cached, record.cached_tokens && number(record.cached_tokens)],
    [words.written, record.cache_write_tokens && number(record.cache_write_tokens)],
    [words.reasoning, record.reasoning_tokens && number(record.reasoning_tokens)],
    [words.searches, record.searches && number(record.searches)],
    [words.tools, record.tool_calls && number(record.tool_calls)],
    [words.cost, record.cost_usd === null ? null : dollars(record.cost_usd)],
    [words.first, record.first_content === null ? null : seconds(record.first_content)],
    [words.took, seconds(record.duration)],
    [words.overhead, record.overhead === null ? null : seconds(record.overhead)],
    [words.guardrails, record.guardrails],
  ];
  return element(
    "section",
    { "aria-label": TEXT.facts },
    element("dl", { class: "facts" }, ...told.filter(([, value]) => value).map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
  );
}

/** Where more than one target was tried that is recorded; of a single one the record says it. */
function stepsOf(record) {
  if (record.trail.length) return record.trail;
  if (!record.attempts) return [];
  const begun = Math.min(record.overhead ?? 0, record.first_content ?? record.duration);
  const outcome = record.cancelled ? "cancelled" : record.error ? "failed" : "answered";
  return [{
    target: record.target, why: "first", outcome, begun, content: record.first_content, ended: record.duration, error: record.error,
  }];
}

function timeline(record) {
  const steps = stepsOf(record);
  const last = Math.max(record.duration, ...steps.map(({ ended }) => ended), Number.MIN_VALUE);
  const at = (moment) => (Math.min(moment, last) / last) * WIDTH;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${ROW * (steps.length + 1)}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "timeline" });
  const part = (row, from, to, kind, words) => svg.append(drawn(
    "rect",
    { class: kind, x: at(from), y: ROW * row + 4, width: Math.max(2, at(to) - at(from)), height: ROW - 8 },
    drawn("title", {}, `${words}: ${seconds(to - from)}`),
  ));
  part(0, 0, record.duration, "nothing", TEXT.whole);
  if (steps.length) part(0, 0, steps[0].begun, "series s2", TEXT.queue);
  steps.forEach((step, order) => {
    const isGood = step.outcome === "answered";
    const content = step.content ?? step.ended;
    part(order + 1, step.begun, content, isGood ? "series s1" : "full", `${step.target} ${TEXT.waiting}`);
    if (step.content !== undefined && step.content !== null) part(order + 1, content, step.ended, "series", `${step.target} ${TEXT.sending}`);
  });
  const view = table(TEXT.timeline, TEXT.timelineHeads, steps.map((step) => [
    step.target, step.why, step.outcome, seconds(step.begun), seconds(step.content), seconds(step.ended),
    element("span", { class: "long" }, [step.error, step.message].filter(Boolean).join(": ")),
  ]), { empty: TEXT.nobodyAsked });
  view.querySelector("h3").after(svg);
  return view;
}

function conversation({ chat, said, data: [record] }) {
  const messages = [...chat.messages, ...(said ? [said] : [])].map(asKept).map(withoutForeignImages);
  return element(
    "section",
    { class: "said", "aria-label": TEXT.conversation },
    element("h3", {}, TEXT.conversation),
    ...messages.map((message) => shown(message, record.model)),
  );
}

// This page loads nothing from anybody else.
function withoutForeignImages(message) {
  if (!Array.isArray(message.content)) return message;
  const content = message.content.map((part) =>
    part.type === "image_url" && !part.image_url.url.startsWith("data:") ? { type: "text", text: TEXT.image(part.image_url.url) } : part);
  return { ...message, content };
}

/** Those that were sent; what may be a secret is covered before it is kept. */
function headers({ headers: sent }) {
  if (!sent?.length) return "";
  return element(
    "details",
    { class: "panel" },
    element("summary", {}, TEXT.headers),
    table(TEXT.headers, TEXT.headerHeads, sent.map(([name, value]) => [element("code", {}, name), element("span", { class: "long" }, value)])),
  );
}

function bodies({ request, reply }) {
  if (request === null) return element("p", { class: "quiet" }, TEXT.noBodies);
  const isCut = [request, reply].some((text) => text.endsWith("[cut]"));
  return element(
    "section",
    { "aria-label": TEXT.bodies },
    isCut && element("p", { class: "quiet" }, TEXT.cut),
    ...[[TEXT.request, request], [TEXT.reply, reply]].map(([title, text]) => element(
      "details",
      { class: "panel" },
      element("summary", {}, title),
      element("pre", { tabindex: "0", role: "region", "aria-label": title }, readable(text)),
    )),
  );
}

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function showCode(chat) {
  const written = snippets({ ...chat, stream: true }, `${location.origin}/v1`);
  const languages = Object.keys(written);
  const choice = element("select", { onchange: () => show() }, ...languages.map((each) => element("option", { value: each }, each)));
  const code = element("pre", { tabindex: "0", role: "region", "aria-label": TEXT.code });
  const show = () => code.replaceChildren(written[choice.value]);
  const dialog = openDialog(
    TEXT.code, labelled(TEXT.language, choice), code,
    element("p", { class: "row" }, button(TEXT.copy, () => copy(written[choice.value]), { class: "primary" }), button(TEXT.close, () => dialog.close())),
  );
  show();
}
