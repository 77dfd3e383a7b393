// A field for a key, which is kept for as long as the tab is there.

import { element, labelled } from "./dom.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.keyForm;

/**
 * Ask for an "api" or an "admin" key, and call `onkey` when it is there. `problem` says what was wrong with the one
 * that there was; who has brought none yet is told what to do instead.
 */
export function keyForm(kind, key, onkey, problem = "") {
  const wasWrong = key.get() !== "";
  const [what, how, command] = TEXT.first[kind];
  const use = element("button", { class: "primary" }, TEXT.use);
  const field = element("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  return element(
    "form",
    {
      class: "key",
      onsubmit: (event) => {
        event.preventDefault();
        key.set(field.value.trim());
        // What is typed while the key is tried would be lost with this form.
        field.disabled = use.disabled = true;
        onkey();
      },
    },
    wasWrong && problem && element("p", { role: "alert" }, problem),
    !wasWrong && what && element("p", {}, what),
    labelled(TEXT.names[kind], field),
    element("p", { class: "quiet" }, TEXT.stays),
    use,
    !wasWrong && how && element("p", { class: "quiet" }, how),
    !wasWrong && command && element("pre", { tabindex: "0", role: "region", "aria-label": TEXT.command }, command),
  );
}
