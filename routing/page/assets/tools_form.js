// The tools that the server runs, to be switched on for a conversation.

import { Failure, ask } from "./api.js";
import { button, element } from "./dom.js";
import { t } from "./strings.js";

const NAMES = { web_search: "tools.webSearch", web_fetch: "tools.webFetch" };

const checkbox = (text, checked, onchange) => {
  const field = element("input", { type: "checkbox", checked, onchange: () => onchange(field.checked) });
  return element("label", { class: "check" }, field, element("span", {}, text));
};

/**
 * What the server offers, with a box for each; filled once it has been asked.
 * @param {object} settings what is chosen is kept in its `server_tools`.
 * @param {() => void} onchange
 */
export function toolsForm(settings, onchange) {
  // An earlier version of this page kept the web search elsewhere.
  if (settings.web_search) (settings.server_tools ??= {}).web_search = true;
  delete settings.web_search;
  const chosen = () => (settings.server_tools ??= {});
  const place = element("fieldset", { class: "server-tools" }, element("legend", {}, t("tools.title")));
  fill(place, chosen, onchange).catch((error) => {
    if (!(error instanceof Failure)) throw error;
    // A server without the Responses API has no words for them.
    if (error.status === 404) place.hidden = true;
    else place.append(element("p", { class: "problem" }, error.message));
  });
  return place;
}

async function fill(place, chosen, onchange) {
  const { data } = await (await ask("v1/tools")).json();
  forget(chosen(), data);
  for (const tool of data) {
    if (tool.type === "mcp") place.append(serverOf(tool.server_label, chosen, onchange));
    else if (tool.type === "file_search") place.append(...(await storesOf(chosen, onchange)));
    else place.append(checkbox(t(NAMES[tool.type]), chosen()[tool.type] ?? false, (isOn) => { chosen()[tool.type] = isOn; onchange(); }));
  }
  if (!data.length) place.append(element("p", { class: "quiet" }, t("tools.none")));
}

/** What a preset or a shared file has switched on, and nobody offers here, would only be refused. */
function forget(chosen, offered) {
  const types = offered.map(({ type }) => type), labels = offered.map(({ server_label: label }) => label);
  for (const type of ["web_search", "web_fetch", "file_search"]) if (!types.includes(type)) delete chosen[type];
  for (const label of Object.keys(chosen.mcp ?? {})) if (!labels.includes(label)) delete chosen.mcp[label];
}

async function storesOf(chosen, onchange) {
  const { data } = await (await ask("v1/vector_stores?limit=100")).json();
  const ids = data.map(({ id }) => id);
  if (chosen().file_search) chosen().file_search = chosen().file_search.filter((id) => ids.includes(id));
  if (!data.length) return [element("p", { class: "quiet" }, t("tools.noStores"))];
  return data.map(({ id, name }) =>
    checkbox(t("tools.store", { name: name || id }), chosen().file_search?.includes(id) ?? false, (isOn) => {
      const others = (chosen().file_search ?? []).filter((each) => each !== id);
      chosen().file_search = isOn ? [...others, id] : others;
      onchange();
    }));
}

function serverOf(label, chosen, onchange) {
  const mine = () => ((chosen().mcp ??= {})[label] ??= { on: false, asks: false });
  const { on = false, asks = false } = chosen().mcp?.[label] ?? {};
  const asking = checkbox(t("tools.asks"), asks, (isOn) => { mine().asks = isOn; onchange(); });
  const list = element("div", { class: "server-list" });
  // A server is connected to when somebody wants to see what it has.
  const fold = element(
    "details",
    { ontoggle: () => { if (fold.open && !list.hasChildNodes()) show(); } },
    element("summary", {}, t("tools.list")),
    list,
  );
  const show = async () => {
    list.replaceChildren(element("p", { class: "quiet", role: "status" }, t("tools.listing", { label })));
    try {
      const { tools, error } = await (await ask(`v1/tools/${encodeURIComponent(label)}`)).json();
      if (error) throw new Failure(error);
      list.replaceChildren(...(tools.length ? boxesOf(tools, mine, onchange) : [element("p", { class: "quiet" }, t("tools.empty"))]));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      list.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message), button(t("tools.again"), show, { class: "small" }));
    }
  };
  const more = element("div", { class: "server-more", hidden: !on }, asking, fold);
  return element(
    "div",
    {},
    checkbox(label, on, (isOn) => { mine().on = isOn; more.hidden = !isOn; onchange(); }),
    more,
  );
}

function boxesOf(tools, mine, onchange) {
  const names = tools.map(({ name }) => name);
  return tools.map(({ name, description, require_approval: asks }) =>
    element(
      "div",
      {},
      checkbox(asks ? t("tools.always", { name }) : name, mine().allowed?.includes(name) ?? true, (isOn) => {
        const others = (mine().allowed ?? names).filter((each) => each !== name);
        const allowed = isOn ? [...others, name] : others;
        // All of them is no list, so that what the server gets later is among them.
        if (names.every((each) => allowed.includes(each))) delete mine().allowed;
        else mine().allowed = allowed;
        onchange();
      }),
      description && element("p", { class: "quiet" }, description.trim().split("\n")[0].slice(0, 200)),
    ));
}
