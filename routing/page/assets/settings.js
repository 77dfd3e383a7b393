// The form of a conversation's settings.

import { NUMBERS } from "./chat.js";
import { announce, button, element, labelled } from "./dom.js";
import * as presets from "./presets.js";
import { t } from "./strings.js";
import { toolsForm } from "./tools_form.js";
import { DEFAULT_VOICE } from "./voice.js";

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

/** Fields that write to `settings`; `onchange` is called after each change. `voice`: see `abilities`. */
export function settingsForm(settings, onchange, { writers, speakers }) {
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
  const schema = labelled(t("settings.schema"), kept("schema", element("textarea", { rows: "6", spellcheck: "false", placeholder: EXAMPLE_SCHEMA })));
  const format = kept(
    "format",
    element("select", {}, ...options([["", t("settings.formatText")], ["json_object", t("settings.formatJSON")], ["json_schema", t("settings.formatSchema")]])),
  );
  const showSchema = () => { schema.hidden = format.value !== "json_schema"; };
  format.addEventListener("input", showSchema);
  showSchema();
  return element(
    "form",
    { class: "settings", onsubmit: (event) => event.preventDefault() },
    labelled(t("settings.system"), kept("system", element("textarea", { rows: "3" }))),
    element(
      "div",
      { class: "pair" },
      ...NUMBERS.map(({ name, ...attributes }) =>
        labelled(name, kept(name, element("input", { type: "number", placeholder: t("settings.unset"), ...attributes })))),
    ),
    labelled(t("settings.stop"), kept("stop", element("textarea", { rows: "2" }))),
    labelled(t("settings.effort"), kept("reasoning_effort", element("select", {}, ...options([["", t("settings.unset")], ...EFFORTS.map((each) => [each, each])])))),
    labelled(t("settings.format"), format),
    schema,
    element("label", { class: "check" }, kept("logprobs", element("input", { type: "checkbox" })), element("span", {}, t("settings.logprobs"))),
    writers.length > 1 && labelled(t("settings.dictateBy"), kept("dictate_by", element("select", {}, ...options(writers.map((each) => [each, each]))))),
    speakers.length > 1 && labelled(t("settings.readBy"), kept("read_by", element("select", {}, ...options(speakers.map((each) => [each, each]))))),
    speakers.length > 0 && labelled(t("settings.voice"), kept("voice", element("input", { placeholder: DEFAULT_VOICE }))),
    toolsForm(settings, onchange),
    labelled(t("settings.tools"), kept("tools", element("textarea", { rows: "5", spellcheck: "false", placeholder: EXAMPLE_TOOLS }))),
    labelled(t("settings.more"), kept("more", element("textarea", { rows: "2", spellcheck: "false", placeholder: '{"top_k": 40}' }))),
  );
}

/**
 * Choose, keep and delete settings under a name.
 * @param {() => object} settings those that would be kept.
 * @param {(settings: object) => void} onchosen a preset takes their place.
 */
export function presetsForm(settings, onchosen) {
  const choice = element("select", {
    onchange: () => {
      const chosen = presets.all()[choice.value];
      if (chosen) onchosen(structuredClone(chosen), choice.value);
    },
  });
  const name = element("input", { maxlength: "60" });
  const remove = button(t("settings.deletePreset"), () => { presets.remove(choice.value); show(""); }, { class: "small" });
  const show = (chosen) => {
    const names = Object.keys(presets.all()).sort();
    choice.replaceChildren(...options([["", t("settings.noPreset")], ...names.map((each) => [each, each])]));
    choice.value = names.includes(chosen) ? chosen : "";
    remove.hidden = !names.length;
  };
  show("");
  return element(
    "form",
    {
      class: "settings presets",
      onsubmit: (event) => {
        event.preventDefault();
        const called = name.value.trim();
        if (!called) return;
        const isKept = presets.save(called, settings());
        announce(isKept ? t("settings.presetSaved", { name: called }) : t("settings.presetNotSaved"));
        name.value = "";
        show(called);
      },
    },
    labelled(t("settings.presets"), choice),
    remove,
    labelled(t("settings.presetName"), name),
    element("button", { class: "small" }, t("settings.savePreset")),
  );
}
