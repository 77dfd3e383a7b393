// Keys: made, limited, rotated and revoked.

import { explain, failure, leave } from "./admin.js";
import { Failure, askAdmin } from "./api.js";
import { button, confirmed, copy, dollars, element, labelled, number, openDialog, table } from "./dom.js";

const LIMITS = [
  ["requests_per_minute", "Requests a minute"],
  ["tokens_per_minute", "Tokens a minute"],
  ["concurrent", "Requests at a time"],
];
const PERIODS = ["day", "week", "month", "ever"];

/** Show them in `main`; what it gives ends it. */
export async function keys(main) {
  const show = async () => {
    let found;
    try {
      found = (await askAdmin("keys")).data;
    } catch (error) {
      explain(main, "Keys", error, show);
      return;
    }
    main.replaceChildren(
      element("div", { class: "row head" }, element("h2", {}, "Keys"),
        button("New key", () => edit(null, show), { class: "primary" }), leave()),
      table("All keys",
        ["Name", "Key", "Team", "Models", "Limits", "Budget", "Expires", "State", "Do"],
        found.map((key) => [
          key.name, element("code", {}, `${key.prefix}-…`), key.team ?? "", key.models.join(", ") || "all",
          limitsOf(key), budgetOf(key), dayOf(key.expires), stateOf(key), actions(key, show),
        ]),
        { empty: "There are no keys yet." }),
    );
  };
  await show();
  return () => {};
}

const limitsOf = ({ limits }) =>
  LIMITS.filter(([name]) => limits?.[name]).map(([name, text]) => `${number(limits[name])} ${text.toLowerCase()}`).join(", ") || "none";

const budgetOf = ({ budget }) => (budget ? `${dollars(budget.amount)} a ${budget.period}`.replace("a ever", "for ever") : "none");
const dayOf = (time) => (time ? time.slice(0, 10) : "never");

function stateOf({ revoked, expires }) {
  if (revoked) return `revoked ${dayOf(revoked)}`;
  return expires && new Date(expires) < new Date() ? "expired" : "good";
}

function actions(key, again) {
  if (key.revoked) return "";
  const named = (text) => ({ class: "small", "aria-label": `${text} ${key.name}` });
  const act = async (question, text, path, method) => {
    if (!(await confirmed(question, text))) return;
    try {
      const told = await askAdmin(path, { method });
      await again();
      if (told.key) showSecret(told);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const dialog = openDialog("That did not work", failure(error), button("Close", () => dialog.close()));
    }
  };
  const path = `keys/${encodeURIComponent(key.id)}`;
  return element(
    "span",
    { class: "row" },
    button("Change", () => edit(key, again), named("Change")),
    button("Rotate", () => act(`Replace the key of ${key.name}? The old one opens nothing any more.`, "Rotate", `${path}/rotate`, "POST"), named("Rotate")),
    button("Revoke", () => act(`Let nobody in with the key of ${key.name} any more?`, "Revoke", path, "DELETE"), { ...named("Revoke"), class: "small danger" }),
  );
}

function showSecret({ name, key }) {
  const dialog = openDialog(
    `The key of ${name}`,
    element("p", {}, "It is shown this once and kept nowhere."),
    element("pre", { tabindex: "0", "aria-label": "Key", role: "region" }, key),
    element("p", { class: "row" }, button("Copy", () => copy(key), { class: "primary" }), button("Close", () => dialog.close())),
  );
}

/** The form of a key, or of a new one where there is none. */
function edit(key, again) {
  const field = (text, attributes) => {
    const input = element("input", attributes);
    return [input, labelled(text, input)];
  };
  const [name, nameLabel] = field("Name", { required: true, value: key?.name ?? "" });
  const [team, teamLabel] = field("Team", { value: key?.team ?? "" });
  const [models, modelsLabel] = field("Models (patterns, with commas; empty: all)", { value: key?.models.join(", ") ?? "", placeholder: "gpt-*, starter" });
  const [expires, expiresLabel] = field("Expires", { type: "date", value: key?.expires?.slice(0, 10) ?? "" });
  const limits = LIMITS.map(([member, text]) => [member, ...field(text, { type: "number", min: 1, placeholder: "no limit", value: key?.limits?.[member] ?? "" })]);
  const [amount, amountLabel] = field("Budget in US dollars", { type: "number", min: 0, step: "any", placeholder: "none", value: key?.budget?.amount ?? "" });
  const period = element("select", {}, ...PERIODS.map((each) => element("option", { value: each }, each)));
  period.value = key?.budget?.period ?? "month";
  const problem = element("div", {});
  const grant = () => ({
    name: name.value.trim(),
    team: team.value.trim() || null,
    models: models.value.split(",").map((each) => each.trim()).filter(Boolean),
    // A day that was not changed keeps its time of day.
    expires: expires.value === (key?.expires?.slice(0, 10) ?? "") ? (key?.expires ?? null) : expires.value || null,
    limits: limits.some(([, input]) => input.value) ? Object.fromEntries(limits.map(([member, input]) => [member, input.value ? Number(input.value) : null])) : null,
    budget: amount.value ? { amount: Number(amount.value), period: period.value } : null,
  });
  const form = element(
    "form",
    {
      class: "key-form",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const told = key
            ? await askAdmin(`keys/${encodeURIComponent(key.id)}`, { method: "PATCH", body: grant() })
            : await askAdmin("keys", { method: "POST", body: grant() });
          dialog.close();
          await again();
          if (told.key) showSecret(told);
        } catch (error) {
          if (!(error instanceof Failure)) throw error;
          problem.replaceChildren(failure(error));
        }
      },
    },
    nameLabel, teamLabel, modelsLabel, expiresLabel,
    ...limits.map(([, , label]) => label),
    amountLabel, labelled("Budget is for a", period), problem,
    element("p", { class: "row" }, element("button", { class: "primary" }, key ? "Change" : "Create"), button("Cancel", () => dialog.close())),
  );
  const dialog = openDialog(key ? `Change ${key.name}` : "New key", form);
}
