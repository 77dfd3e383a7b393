// A field for a key, which is kept for as long as the tab is there.

import { element, labelled } from "./dom.js";

const TEXT = {
  use: "Use this key",
  stays: "It stays in this tab and is gone when that is closed.",
  first: {
    "API key": [
      "This server is for those who have a key. Whoever runs it gives you one.",
      "You run it? Make one under Keys and teams, or by the command below; one that the template names does as well.",
      "llama-compat keys create NAME",
    ],
    "Admin key": [
      "This is for whoever runs the server. It wants the admin key: what `server.admin_key` in the template says, often the variable ADMIN_KEY of the server's environment.",
      "An API key does not open it.",
    ],
  },
};

/**
 * Ask for a key, and call `onkey` when it is there. `problem` says what was wrong with the one
 * that there was; who has brought none yet is told what to do instead.
 */
export function keyForm(name, key, onkey, problem = "") {
  const wasWrong = key.get() !== "";
  const [what, how, command] = TEXT.first[name] ?? [];
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
    labelled(name, field),
    element("p", { class: "quiet" }, TEXT.stays),
    use,
    !wasWrong && how && element("p", { class: "quiet" }, how),
    !wasWrong && command && element("pre", { tabindex: "0", role: "region", "aria-label": "Command" }, command),
  );
}
