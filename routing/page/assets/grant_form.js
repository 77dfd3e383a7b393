// The form of what a key opens, and the key itself, which is shown once.

import { attempt } from "./admin.js";
import { Failure, askAdmin } from "./api.js";
import { announce, button, copy, element, labelled, openDialog } from "./dom.js";
import { failure } from "./failure.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.keys;

const LIMITS = ["requests_per_minute", "tokens_per_minute", "concurrent"];

/** Draw anew what has become of a key by `again`; a secret is shown before, as nobody is told it a second time. */
export async function afterwards(told, again) {
  if (told.key) showSecret(told);
  await attempt(again);
}

function showSecret({ name, key }) {
  const dialog = openDialog(
    TEXT.keyOf(name),
    element("p", {}, TEXT.once),
    element("pre", { tabindex: "0", "aria-label": TEXT.key, role: "region" }, key),
    element("p", { class: "row" }, button(TEXT.copy, () => copy(key), { class: "primary" }), button(TEXT.close, () => dialog.close())),
  );
}

/** Change `key`, or make one where it is null; `again` is awaited once that is done. */
export function edit(key, teams, again) {
  const fields = fieldsOf([...new Set([...teams, key?.team].filter(Boolean))]);
  const problem = element("div", {});
  let read = key;
  let filled = fill(fields, read);

  /** What somebody else has changed meanwhile comes into the form; what was typed here stays. */
  const takeIn = async () => {
    const fresh = (await askAdmin("access")).data.find(({ id }) => id === key.id);
    if (!fresh) return;
    const typed = fields.filter(({ input }, place) => input.value !== filled[place]).map(({ input }) => [input, input.value]);
    const before = filled;
    read = fresh;
    filled = fill(fields, read);
    const others = fields.filter((_, place) => filled[place] !== before[place]).map(({ text, input }) => `${text}: ${input.value || TEXT.fields.none}`);
    for (const [input, value] of typed) choose(input, value);
    problem.replaceChildren(element("p", { class: "failure", role: "alert" }, TEXT.changedMeanwhile(others)));
  };

  const send = async () => {
    const body = grantOf(fields, read);
    if (!key) return askAdmin("keys", { method: "POST", body });
    const headers = { "if-match": `"${read.version}"` };
    return askAdmin(`keys/${encodeURIComponent(key.id)}`, { method: "PATCH", body, headers });
  };

  const form = element(
    "form",
    {
      class: "key-form",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const told = await send();
          dialog.close();
          announce(key ? TEXT.changeOf(told.name) : TEXT.keyOf(told.name));
          await afterwards(told, again);
        } catch (error) {
          if (!(error instanceof Failure)) throw error;
          problem.replaceChildren(failure(error));
          if (error.code === "key_changed") await takeIn().catch((other) => problem.replaceChildren(failure(other)));
        }
      },
    },
    ...fields.map(({ label }) => label), problem,
    element("p", { class: "row" }, element("button", { class: "primary" }, key ? TEXT.change : TEXT.create), button(TEXT.cancel, () => dialog.close())),
  );
  const dialog = openDialog(key ? TEXT.changeOf(key.name) : TEXT.newKey, form);
}

/** The fields of the form, in their order. */
function fieldsOf(teams) {
  const words = TEXT.fields;
  const field = (name, text, input) => ({ name, text, input, label: labelled(text, input) });
  const choice = (options) => element("select", {}, ...options.map(([value, text]) => element("option", { value }, text)));
  return [
    field("name", words.name, element("input", { required: true })),
    field("team", words.team, choice([["", TEXT.noTeam], ...teams.map((each) => [each, each])])),
    field("models", words.models, element("input", { placeholder: words.modelsHint })),
    field("expires", words.expires, element("input", { type: "date" })),
    ...LIMITS.map((name) => field(name, words.limits[name], element("input", { type: "number", min: 1, placeholder: words.noLimit }))),
    field("amount", words.amount, element("input", { type: "number", min: 0, step: "any", placeholder: words.none })),
    field("period", words.period, choice(Object.entries(words.periods))),
  ];
}

/** Put into the fields what `key` opens, or a new one; what then stands in each. */
function fill(fields, key) {
  const values = {
    name: key?.name, team: key?.team, models: key?.models.join(", "), expires: key?.expires?.slice(0, 10),
    ...key?.limits, amount: key?.budget?.amount, period: key?.budget?.period ?? "month",
  };
  for (const { name, input } of fields) choose(input, values[name] ?? "");
  return fields.map(({ input }) => input.value);
}

function choose(input, value) {
  const isOption = !input.options || [...input.options].some((each) => each.value === value);
  // A team that somebody else has given it.
  if (!isOption) input.append(element("option", { value }, value));
  input.value = value;
}

/** What the fields say, of a key that was as `key`. */
function grantOf(fields, key) {
  const said = Object.fromEntries(fields.map(({ name, input }) => [name, input.value.trim()]));
  const hasLimits = LIMITS.some((name) => said[name]);
  return {
    name: said.name,
    team: said.team || null,
    models: said.models.split(",").map((each) => each.trim()).filter(Boolean),
    // A day that was not changed keeps its time of day.
    expires: said.expires === (key?.expires?.slice(0, 10) ?? "") ? (key?.expires ?? null) : said.expires || null,
    limits: hasLimits ? Object.fromEntries(LIMITS.map((name) => [name, said[name] ? Number(said[name]) : null])) : null,
    budget: said.amount ? { amount: Number(said.amount), period: said.period } : null,
  };
}
