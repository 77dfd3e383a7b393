// What a model writes, as text with headings, tables, code and mathematics: never as anything that could act.

import { button, copy, element } from "./dom.js";
import { t } from "./strings.js";
import DOMPurify from "./vendor/dompurify.js";
import { Marked } from "./vendor/marked.js";

/** Longer code is shown without colours: they would take longer than anybody waits. */
const MOST_COLOURED = 50_000;

const TAGS = "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr img input li ol p pre s span strong table tbody td th thead tr ul".split(" ");
const ATTRIBUTES = ["align", "alt", "checked", "class", "disabled", "href", "src", "start", "title", "type"];

const IMAGE_DATA = /^data:image\/(png|jpe?g|gif|webp|avif);base64,/i;

const escaped = (text) => text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);

// Where a reply may send its reader; anything else is shown as text.
function webAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

const MATHS = [
  { name: "display", level: "block", begins: /(?:^|\n) {0,3}(?:\$\$|\\\[)/, rule: /^ {0,3}(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/ },
  { name: "inline", level: "inline", begins: /\$|\\\(|\\\[/, rule: /^(?:\$\$([^$\n]+?)\$\$|\\\(([\s\S]+?)\\\)|\\\[([\s\S]+?)\\\]|\$(?![\s$])((?:\\.|[^$\\\n])*?[^\s\\])\$(?!\d))/ },
];

const marked = new Marked({
  gfm: true,
  renderer: {
    // Markup of the model's own is text.
    html: ({ text }) => escaped(text),
    image({ href, text }) {
      if (IMAGE_DATA.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}">`;
      const url = webAddress(href);
      // Nobody else learns that the reply was read, unless the reader goes there.
      return url ? `<a href="${escaped(url.href)}">${escaped(t("markdown.image", { alt: text || url.pathname, host: url.host }))}</a>` : escaped(text);
    },
    link({ href, tokens }) {
      const url = webAddress(href);
      const inner = this.parser.parseInline(tokens);
      return url ? `<a href="${escaped(url.href)}">${inner}</a>` : inner;
    },
  },
  extensions: MATHS.map(({ name, level, begins, rule }) => ({
    name: `maths-${name}`,
    level,
    start: (text) => text.match(begins)?.index,
    tokenizer(text) {
      const found = rule.exec(text);
      if (!found) return undefined;
      return { type: `maths-${name}`, raw: found[0], tex: found.slice(1).find((each) => each !== undefined).trim(), isDisplay: /^\s*(\$\$|\\\[)/.test(found[0]) };
    },
    renderer: ({ tex, isDisplay }) => `<code class="maths${isDisplay ? " display" : ""}">${escaped(tex)}</code>`,
  })),
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

const clean = (html, more = {}) =>
  DOMPurify.sanitize(html, { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ATTRIBUTES, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true, ...more });

/**
 * Markdown that grows. Only its last block is made again with what is added: what stands before it
 * stays as it is, with whatever the reader has selected there.
 */
export class Markdown {
  #source = "";
  #settled = 0;
  #open = [];

  constructor() {
    this.root = element("div", { class: "text markdown" });
  }

  /** Show `text`, which is all of it so far; `isWhole` once nothing comes any more. */
  update(text, isWhole = false) {
    if (!text.startsWith(this.#source)) this.#begin();
    if (text === this.#source && !isWhole) return;
    this.#source = text;
    // A link may be named before the place that says where it goes.
    if (isWhole && this.#settled && /^ {0,3}\[[^\]\n]+\]:/m.test(text)) this.#begin();
    const tokens = marked.lexer(text.slice(this.#settled).replaceAll("\r", " "));
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    const settling = isWhole ? tokens : tokens.slice(0, Math.max(last, 0));
    const growing = isWhole ? [] : tokens.slice(Math.max(last, 0));
    this.#open.forEach((node) => node.remove());
    this.#append(settling, tokens.links, true);
    this.#settled += settling.reduce((length, { raw }) => length + raw.length, 0);
    this.#open = this.#append(growing, tokens.links, false);
  }

  #begin() {
    this.root.replaceChildren();
    this.#settled = 0;
    this.#source = "";
    this.#open = [];
  }

  #append(tokens, links, isSettled) {
    if (!tokens.length) return [];
    const fragment = clean(marked.parser(Object.assign(tokens, { links })));
    dress(fragment, isSettled);
    const nodes = [...fragment.childNodes];
    this.root.append(fragment);
    return nodes;
  }
}

function dress(fragment, isSettled) {
  for (const table of fragment.querySelectorAll("table")) {
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t("markdown.table") });
    table.replaceWith(scroll);
    scroll.append(table);
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.replaceWith(element("span", { role: "img", "aria-label": t(box.checked ? "markdown.done" : "markdown.open") }, box.checked ? "☑" : "☐"));
  }
  for (const code of fragment.querySelectorAll("pre > code")) dressCode(code, isSettled);
  if (isSettled) fragment.querySelectorAll("code.maths").forEach(typeset);
}

function dressCode(code, isSettled) {
  const language = /(?:^|\s)language-(\S+)/.exec(code.className)?.[1] ?? "";
  const text = code.textContent;
  const pre = code.parentElement;
  pre.setAttribute("tabindex", "0");
  pre.setAttribute("role", "group");
  pre.setAttribute("aria-label", language ? t("markdown.codeIn", { language }) : t("markdown.code"));
  const block = element(
    "div",
    { class: "code" },
    element("div", { class: "code-head" }, element("span", {}, language), button(t("common.copy"), () => copy(text), { class: "small", "aria-label": t("markdown.copyCode") })),
  );
  pre.replaceWith(block);
  block.append(pre);
  if (isSettled && language && text.length <= MOST_COLOURED) colour(code, text, language);
}

// Both are large, and most replies need neither: they come when the first does.

async function colour(code, text, language) {
  const { default: highlighter } = await import("./vendor/highlight.js");
  if (!highlighter.getLanguage(language)) return;
  code.replaceChildren(clean(highlighter.highlight(text, { language, ignoreIllegals: true }).value, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"] }));
}

async function typeset(code) {
  const { default: temml } = await import("./vendor/temml.js");
  const tex = code.textContent;
  let made;
  try {
    made = temml.renderToString(tex, { displayMode: code.classList.contains("display"), throwOnError: true, trust: false, maxExpand: 200, annotate: true });
  } catch {
    return; // It is shown as it was written.
  }
  // The page's policy lets nothing be styled from within, and would say so of each.
  const fragment = DOMPurify.sanitize(made.replace(/ style="[^"]*"/g, ""), {
    USE_PROFILES: { mathMl: true },
    // What was written stays, to be copied.
    ADD_TAGS: ["semantics", "annotation"],
    FORBID_ATTR: ["style", "href", "id"],
    RETURN_DOM_FRAGMENT: true,
  });
  code.replaceWith(fragment);
}
