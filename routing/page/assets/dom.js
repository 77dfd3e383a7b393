// Elements, and what is said to people who listen.

import { WORDS } from "./strings.js";

// What has no shape of its own, or turns the order of letters round, so that one name looks like another.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Somebody's text as the page shows it: what nobody would see in it is spelt out, as in the terminal. */
const plain = (text) =>
  typeof text === "string" ? text.replace(HIDDEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`) : text;

/**
 * A new element.
 * @param {string} tag
 * @param {Object<string, any>} attributes `on...` are listeners, `false` and `null` leave one out,
 *   `value` and `checked` are properties.
 * @param {...(Node|string|number|null|undefined|false)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined && each !== false).map(plain));
  return made;
}

/** A label with its field inside. */
export const labelled = (text, field) => element("label", {}, element("span", {}, text), field);

export const button = (text, onclick, attributes = {}) =>
  element("button", { type: "button", onclick, ...attributes }, text);

/** A table that scrolls by itself where it is too wide, by keyboard too. */
export function table(caption, heads, rows, { empty = WORDS.dom.empty } = {}) {
  if (!rows.length) {
    return element("section", { class: "table" }, element("h3", {}, caption), element("p", { class: "quiet" }, empty));
  }
  return element(
    "section",
    { class: "table" },
    element("h3", {}, caption),
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
        element(
          "tbody",
          {},
          ...rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell ?? "")))),
        ),
      ),
    ),
  );
}

/** Have a screen reader say it. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Put text into the clipboard; whether that was possible (pages that came by plain HTTP from another machine may not). */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce(WORDS.dom.copied);
    return true;
  } catch {
    announce(WORDS.dom.notCopied);
    return false;
  }
}

/** By what an element is found that was drawn anew: where it says what it is (`data-place`), as its name may change, or its name. */
const placeOf = (each) => each?.dataset?.place ?? each?.getAttribute?.("aria-label");

function focusAt(root, place) {
  if (!place) return;
  [...root.querySelectorAll("[data-place], [aria-label]")].find((each) => placeOf(each) === place)?.focus({ preventScroll: true });
}

/** What is in focus within `root` now; what comes of it puts the focus there again, in what was drawn instead. */
export function focusIn(root) {
  const place = root?.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  return (drawn) => focusAt(drawn, place);
}

/** A modal dialog with a heading, gone from the page when it is closed; who opened it is where they were, even if that was drawn anew. */
export function openDialog(title, ...children) {
  const opener = document.activeElement;
  const closed = () => {
    dialog.remove();
    if (opener && !opener.isConnected) focusAt(document, placeOf(opener));
  };
  const dialog = element(
    "dialog",
    { "aria-label": title, onclose: closed },
    element("h2", {}, title),
    ...children,
  );
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Ask whether to do what can't be undone. */
export function confirmed(question, action) {
  return new Promise((resolve) => {
    let answer = false;
    const dialog = openDialog(
      question,
      element(
        "p",
        { class: "row" },
        button(action, () => { answer = true; dialog.close(); }, { class: "danger" }),
        button(WORDS.dom.cancel, () => dialog.close(), { autofocus: true }),
      ),
    );
    dialog.addEventListener("close", () => resolve(answer));
  });
}
