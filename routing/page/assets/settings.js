// The form of a conversation's settings.

import { NUMBERS } from "./chat.js";
import { element, labelled } from "./dom.js";

const EXAMPLE_TOOLS = `[{"type": "function", "function": {
  "name": "get_weather",
  "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"]}}}]`;

const EXAMPLE_SCHEMA = `{"type": "object",
  "properties": {"city": {"type": "string"}},
  "required": ["city"], "additionalProperties": false}`;

const options = (pairs) => pairs.map(([value, text]) => element("option", { value }, text));

const EFFORTS = ["none", "minimal", "low", "medium", "high"];

/** Fields that write to `settings`; `onchange` is called after each change. */
export function settingsForm(settings, onchange) {
  const kept = (name, field) => {
    const property = field.type === "checkbox" ? "checked" : "value";
    if (settings[name] !== undefined) field[property] = settings[name];
    field.name = name;
    field.addEventListener("input", () => {
      settings[name] = field[property];
      onchange();
    });
    return field;
  };
  const schema = labelled("JSON schema", kept("schema", element("textarea", { rows: "6", spellcheck: "false", placeholder: EXAMPLE_SCHEMA })));
  const format = kept(
    "format",
    element("select", {}, ...options([["", "text"], ["json_object", "JSON"], ["json_schema", "JSON of a schema"]])),
  );
  const showSchema = () => { schema.hidden = format.value !== "json_schema"; };
  format.addEventListener("input", showSchema);
  showSchema();
  return element(
    "form",
    { class: "settings", onsubmit: (event) => event.preventDefault() },
    labelled("System prompt", kept("system", element("textarea", { rows: "3" }))),
    element(
      "div",
      { class: "pair" },
      ...NUMBERS.map(({ name, ...attributes }) =>
        labelled(name, kept(name, element("input", { type: "number", placeholder: "unset", ...attributes })))),
    ),
    labelled("Stop strings, one a line", kept("stop", element("textarea", { rows: "2" }))),
    labelled("Reasoning effort", kept("reasoning_effort", element("select", {}, ...options([["", "unset"], ...EFFORTS.map((each) => [each, each])])))),
    labelled("Reply as", format),
    schema,
    element("label", { class: "check" }, kept("logprobs", element("input", { type: "checkbox" })), element("span", {}, "Logprobs as colours")),
    labelled("Tools (JSON)", kept("tools", element("textarea", { rows: "5", spellcheck: "false", placeholder: EXAMPLE_TOOLS }))),
    labelled("More parameters (JSON)", kept("more", element("textarea", { rows: "2", spellcheck: "false", placeholder: '{"top_k": 40}' }))),
  );
}
