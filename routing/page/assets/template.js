// The template: shown without its secrets, checked as one types, and taken over where it may be.

import { explain, leave } from "./admin.js";
import { Failure, askAdmin } from "./api.js";
import { difference, hunks } from "./difference.js";
import { announce, button, confirmed, copy, element, openDialog } from "./dom.js";
import { failure } from "./failure.js";
import { number } from "./formats.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.template;

const CHECK_MS = 350;

// What somebody has changed and not taken over is kept while they look into another room.
let draft = null;
// A draft of a file that somebody else has changed since: it can't be put into theirs by itself.
let leftOver = null;

/** Show it in `main`, until `ended`. */
export async function template(main, { ended }) {
  const show = async () => {
    let told;
    try {
      told = await askAdmin("template", { signal: ended });
    } catch (error) {
      if (!ended.aborted) explain(main, TEXT.title, error, show);
      return;
    }
    main.replaceChildren(...(told.text === null ? unreadable(told, show) : editor(told, show, ended)));
  };
  await show();
}

const head = (path, ...buttons) =>
  element("div", { class: "row head" }, element("h2", {}, TEXT.title, " ", element("code", { title: path }, path.split(/[/\\]/).at(-1))), ...buttons, leave());

const unreadable = ({ path, problems }, again) => [
  head(path),
  element("p", { class: "failure", role: "alert" }, TEXT.unreadable),
  element("ul", {}, ...problems.map(({ line, message }) => element("li", {}, `${TEXT.line(line)}: ${message}`))),
  button(TEXT.read, again),
];

function editor(told, again, ended) {
  const canEdit = told.can_edit && !told.why_not;
  const before = told.text;
  if (draft && draft.version !== told.version) [leftOver, draft] = [draft, null];
  const numbers = element("div", { class: "numbers-of-lines", "aria-hidden": "true" });
  const area = element("textarea", {
    "aria-label": TEXT.editor, "aria-describedby": "template-state", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off",
    readonly: !told.can_edit, value: draft?.text ?? before,
  });
  const state = element("p", { id: "template-state", class: "quiet" });
  const list = element("ol", { class: "mistakes" });
  const review = button(TEXT.review, () => showDifference(), { class: "primary", disabled: true });
  const discard = button(TEXT.discard, async () => {
    if (!(await confirmed(TEXT.discardAsk, TEXT.discard))) return;
    area.value = before;
    changed();
    area.focus();
  }, { disabled: true });
  let problems = told.problems;
  let timer = 0, asking = new AbortController();
  let saidWrong = problems.length;

  const drawNumbers = () => {
    const wrong = new Map(problems.map(({ line, message }) => [line, message]));
    const count = area.value.split("\n").length;
    numbers.replaceChildren(...Array.from({ length: count }, (_, place) =>
      element("span", wrong.has(place + 1) ? { class: "bad", title: wrong.get(place + 1) } : {}, String(place + 1))));
    numbers.scrollTop = area.scrollTop;
  };

  const drawProblems = () => {
    list.replaceChildren(...problems.map(({ line, path, message }) => element(
      "li",
      {},
      button(line === null ? TEXT.title : TEXT.line(line), () => goTo(line ?? 1), { class: "small" }),
      element("span", {}, path && element("code", {}, path), path && ": ", message),
    )));
    const isChanged = area.value !== before;
    state.textContent = problems.length ? TEXT.wrong(problems.length) : isChanged ? TEXT.right : TEXT.unchanged;
    state.classList.toggle("problem", problems.length > 0);
    // Typing is not talked over: only that there is another number of mistakes is said.
    if (problems.length !== saidWrong) announce(state.textContent);
    saidWrong = problems.length;
    review.disabled = !canEdit || !isChanged || problems.length > 0;
    discard.disabled = !isChanged;
    drawNumbers();
  };

  const goTo = (line) => {
    const lines = area.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    area.focus();
    area.setSelectionRange(at, at + (lines[line - 1] ?? "").length);
    const height = area.scrollHeight / lines.length;
    area.scrollTop = Math.max(0, (line - 4) * height);
  };

  const check = async () => {
    asking.abort();
    asking = new AbortController();
    const signal = AbortSignal.any([asking.signal, ended]);
    const text = area.value;
    try {
      const found = await askAdmin("template/check", { method: "POST", body: { text }, headers: { "if-match": `"${told.version}"` }, signal });
      if (text !== area.value) return;
      problems = found.problems;
      drawProblems();
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Failure)) throw error;
      state.replaceChildren(failure(error), error.status === 412 ? button(TEXT.read, again) : "");
    }
  };

  const changed = () => {
    draft = area.value === before ? null : { version: told.version, before, text: area.value };
    clearTimeout(timer);
    review.disabled = true;
    discard.disabled = area.value === before;
    state.classList.remove("problem");
    state.textContent = TEXT.checking;
    drawNumbers();
    timer = setTimeout(check, CHECK_MS);
  };

  const showDifference = () => {
    const text = area.value;
    const said = element("div", { role: "status" });
    const take = button(TEXT.take, async () => {
      take.disabled = true;
      try {
        const taken = await askAdmin("template", { method: "PUT", body: { text }, headers: { "if-match": `"${told.version}"` } });
        draft = null;
        dialog.replaceChildren(...outcome(taken), button(TEXT.close, () => dialog.close(), { autofocus: true }));
        dialog.querySelector("button").focus();
        dialog.addEventListener("close", again);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        said.replaceChildren(failure(error), error.status === 412 ? button(TEXT.read, () => { dialog.close(); again(); }) : "");
        take.disabled = false;
      }
    }, { class: "primary" });
    const dialog = openDialog(
      TEXT.reviewTitle, shown(before, text), said,
      element("p", { class: "row" }, take, button(TEXT.cancel, () => dialog.close())),
    );
    dialog.classList.add("wide");
  };

  area.addEventListener("input", changed);
  area.addEventListener("scroll", () => { numbers.scrollTop = area.scrollTop; });
  ended.addEventListener("abort", () => clearTimeout(timer));
  if (area.value === before) drawProblems();
  else changed();
  return [
    head(told.path, ...(told.can_edit ? [discard, review] : [])),
    element("p", { class: "quiet" }, before.includes("covered.") ? TEXT.covered : "", told.can_edit ? told.why_not && ` ${told.why_not}` : ` ${TEXT.readOnly}`),
    leftOver ? ofBefore() : "",
    element(
      "div",
      { class: "template" },
      element("div", { class: "editor" }, numbers, area),
      element("section", { "aria-label": TEXT.problems }, state, list),
    ),
  ];
}

/** What was changed in a file that has become another meanwhile, to be taken from there by hand. */
function ofBefore() {
  const { before, text } = leftOver;
  const place = element(
    "section",
    { class: "panel", "aria-label": TEXT.leftOver },
    element("h3", {}, TEXT.leftOver),
    element("p", {}, TEXT.leftOverWhy),
    shown(before, text, TEXT.leftOver),
    element("p", { class: "row" }, button(TEXT.copy, () => copy(text)), button(TEXT.forget, () => { leftOver = null; place.remove(); })),
  );
  return place;
}

/** The lines that will be others, those around them, and for readers what each is. */
function shown(before, after, name = TEXT.reviewTitle) {
  const lines = hunks(difference(before, after)).map((line) => {
    if (line === null) return element("span", { class: "left-out" }, `… ${TEXT.left}`);
    const words = (tag, sign, word) => element(tag, {}, element("span", { class: "for-readers" }, `${word} ${TEXT.line(line.line)}: `), `${sign} ${line.text}`);
    if (line.kind === "gone") return words("del", "−", TEXT.gone);
    if (line.kind === "new") return words("ins", "+", TEXT.fresh);
    return element("span", {}, `  ${line.text}`);
  });
  return element("pre", { class: "difference", tabindex: "0", role: "region", "aria-label": name }, ...lines);
}

function outcome({ providers, restart, others_told: others, backup }) {
  const fates = Object.entries(providers);
  return [
    element("h2", {}, TEXT.title),
    element("p", {}, TEXT.taken),
    element(
      "ul",
      {},
      ...(fates.length
        ? fates.map(([fate, ids]) => element("li", {}, `${TEXT.fates[fate] ?? fate}: ${ids.join(", ")}`))
        : [element("li", {}, TEXT.sameMeaning)]),
      restart.length > 0 && element("li", { class: "problem" }, `${TEXT.restart}: ${restart.join(", ")}`),
      others && element("li", {}, TEXT.others),
      element("li", {}, `${TEXT.backup} `, element("code", {}, backup)),
    ),
  ];
}
