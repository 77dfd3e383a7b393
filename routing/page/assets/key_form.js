// A field for a key, which is kept for as long as the tab is there.

import { element, labelled } from "./dom.js";

/** Ask for a key, and call `onkey` when it is there; `problem` says why it is asked for. */
export function keyForm(name, key, onkey, problem = "") {
  const use = element("button", { class: "primary" }, "Use this key");
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
    problem && element("p", { role: "alert" }, problem),
    labelled(name, field),
    element("p", { class: "quiet" }, "It stays in this tab and is gone when that is closed."),
    use,
  );
}
