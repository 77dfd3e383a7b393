// Keys and teams: what each has used of what it may, and keys made, limited, rotated and revoked.

import { attempt, download, explain, leave } from "./admin.js";
import { Failure, askAdmin, serverNow } from "./api.js";
import { budgetIn, budgetShown } from "./budgets.js";
import { chart } from "./chart.js";
import { button, confirmed, element, focusIn, labelled, openDialog } from "./dom.js";
import { badge, bar, spark, when } from "./figures.js";
import { dollars, number } from "./formats.js";
import { edit, showSecret } from "./grant_form.js";
import { every } from "./looking.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.keys;

const ORDER = ["good", "team_gone", "unreadable", "expired", "revoked"];
const NO_TEAM = "\u0000";
const DAYS = 30, DAY = 86400;
const LOOK_MS = 5000, CURVES_MS = 60000;

/** Show them in `main`; what it gives ends it. */
export async function keys(main) {
  const ended = new AbortController();
  const room = new Keys(main, ended.signal);
  await room.start();
  return () => ended.abort();
}

class Keys {
  constructor(main, ended) {
    Object.assign(this, { main, ended, curves: new Map(), rows: new Map(), told: null, hasRecords: false });
  }

  async start() {
    try {
      this.told = await askAdmin("access", { signal: this.ended });
    } catch (error) {
      if (!this.ended.aborted) explain(this.main, TEXT.title, error, () => this.start());
      return;
    }
    const again = () => this.#show();
    this.search = element("input", { type: "search", placeholder: TEXT.searchHint, oninput: again });
    this.team = element("select", { onchange: again });
    this.state = element("select", { onchange: again },
      element("option", { value: "" }, TEXT.anyState), ...ORDER.map((each) => element("option", { value: each }, TEXT.states[each])));
    this.teams = element("ul", { class: "cards" });
    this.list = element("ul", { class: "entries" });
    this.count = element("p", { class: "quiet", role: "status" });
    this.note = element("p", { class: "quiet" }, this.#noteText());
    this.main.replaceChildren(
      element("div", { class: "row head" },
        element("h2", {}, TEXT.title),
        this.told.stored_keys && button(TEXT.newKey, () => edit(null, this.#teamNames(), () => this.look()), { class: "primary" }),
        button(TEXT.export, () => attempt(() => download("access?format=csv", "keys.csv"))),
        this.told.records && button(TEXT.exportUsage, () => attempt(() => download(`usage?by=key&by=day&since=${DAYS}d&format=csv`, "spending.csv"))),
        leave()),
      this.note,
      element("section", { class: "teams", hidden: !this.told.teams.length }, element("h3", {}, TEXT.teams), this.teams),
      element("div", { class: "row filters" }, labelled(TEXT.search, this.search), labelled(TEXT.team, this.team), labelled(TEXT.state, this.state), this.count),
      element("section", {}, element("h3", { class: "for-readers" }, TEXT.keys), this.list),
    );
    await this.#readCurves();
    this.#show();
    every(LOOK_MS, () => this.look(), this.ended);
    every(CURVES_MS, async () => { await this.#readCurves(); this.#show(); }, this.ended);
  }

  async look() {
    this.told = await askAdmin("access", { signal: this.ended });
    this.#show();
  }

  #noteText() {
    return [this.told.is_open && TEXT.everybody, !this.told.stored_keys && TEXT.notStored].filter(Boolean).join(" ");
  }

  #teamNames() {
    return this.told.teams.map(({ id }) => id);
  }

  /** What each key and team has cost, by day. */
  async #readCurves() {
    if (!this.told.records) return;
    try {
      const { data } = await askAdmin(`usage?by=key&by=day&since=${DAYS}d`, { signal: this.ended });
      this.curves = new Map();
      const teamOf = new Map(this.told.data.map(({ id, team }) => [id, team]));
      for (const row of data) {
        for (const name of [`key:${row.key}`, teamOf.get(row.key) && `team:${teamOf.get(row.key)}`]) {
          if (!name) continue;
          const points = this.curves.get(name) ?? new Map();
          const time = Date.parse(row.day) / 1000;
          const before = points.get(time) ?? { time, cost: 0, requests: 0 };
          points.set(time, { time, cost: before.cost + (row.cost_usd ?? 0), requests: before.requests + row.requests });
          this.curves.set(name, points);
        }
      }
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // The rest of the page stands without them.
    }
  }

  #show() {
    const { data, teams } = this.told;
    this.#showTeamChoice();
    this.#fill(this.teams, teams.map((team) => [`team:${team.id}`, [team, this.#curve(`team:${team.id}`)], () => this.#teamCard(team)]));
    const wanted = this.search.value.trim().toLowerCase();
    const found = data
      .filter((key) => !wanted || [key.name, key.id, key.prefix, key.team, ...key.models].some((text) => text?.toLowerCase().includes(wanted)))
      .filter((key) => !this.team.value || (key.team ?? NO_TEAM) === this.team.value)
      .filter((key) => !this.state.value || key.state === this.state.value)
      .sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
    const said = data.length ? TEXT.found(found.length, data.length) : "";
    if (this.count.textContent !== said) this.count.textContent = said;
    if (!found.length) this.list.replaceChildren(element("li", { class: "quiet" }, data.length ? TEXT.noneFound : TEXT.none));
    else this.#fill(this.list, found.map((key) => [`key:${key.id}`, [key, this.#curve(`key:${key.id}`)], () => this.#keyRow(key)]));
  }

  #showTeamChoice() {
    const names = this.#teamNames();
    if (this.team.dataset.names === JSON.stringify(names)) return;
    const chosen = this.team.value;
    this.team.dataset.names = JSON.stringify(names);
    this.team.replaceChildren(
      element("option", { value: "" }, TEXT.allTeams), ...names.map((name) => element("option", { value: name }, name)),
      element("option", { value: NO_TEAM }, TEXT.noTeam));
    this.team.value = chosen;
  }

  /** Put entries into a list, of which those that are the same are left alone: somebody may be in one. */
  #fill(list, entries) {
    const made = entries.map(([name, what, make]) => {
      const said = JSON.stringify(what);
      const before = this.rows.get(name);
      if (before?.said === said) return before.row;
      const row = make();
      this.rows.set(name, { said, row });
      const refocus = focusIn(before?.row);
      queueMicrotask(() => refocus(row));
      return row;
    });
    if (made.length !== list.children.length || made.some((row, place) => list.children[place] !== row)) list.replaceChildren(...made);
  }

  #curve(name) {
    const points = this.curves.get(name);
    return points ? [...points.values()].sort((one, other) => one.time - other.time) : [];
  }

  #teamCard(team) {
    return element("li", {},
      element("h4", {}, team.id, " ", element("span", { class: "quiet" }, TEXT.ofTeam(team.keys))),
      ...uses(team),
      this.#spending(team.id, `team:${team.id}`));
  }

  #keyRow(key) {
    const name = key.name || key.id;
    return element("li", { class: `entry ${key.state}` },
      element("div", { class: "who-it-is" },
        element("h4", {}, name),
        element("p", { class: "badges" },
          key.source === "template" && badge(TEXT.template),
          key.state !== "good" && badge(TEXT.states[key.state], "bad"),
          key.team && badge(key.team, "team")),
        element("p", { class: "quiet" }, element("code", {}, key.prefix ? `${key.prefix}-…` : key.id)),
        element("p", { class: "quiet models" }, key.models.join(", ") || TEXT.allModels)),
      element("div", { class: "money" }, ...budgetOf(name, key), this.#spending(name, `key:${key.id}`)),
      element("div", { class: "limits" }, ...limitsOf(name, key)),
      element("div", { class: "times quiet" },
        this.told.records && element("p", {}, ...(key.last_used ? [TEXT.used, when(key.last_used)] : [TEXT.neverUsed])),
        key.revoked && element("p", {}, TEXT.revoked, key.revoked.slice(0, 10)),
        key.expires && !key.revoked && element("p", {}, TEXT.expires, key.expires.slice(0, 10))),
      this.#actions(key, name));
  }

  #spending(name, subject) {
    const points = this.#curve(subject);
    if (!this.told.records || !points.length) return null;
    const to = serverNow() / 1000;
    const from = (Math.floor(to / DAY) - DAYS + 1) * DAY;
    const byTime = new Map(points.map((point) => [point.time, point]));
    const values = Array.from({ length: DAYS }, (_, place) => byTime.get(from + place * DAY)?.cost ?? 0);
    const free = points.every(({ cost }) => !cost);
    const series = free
      ? [{ name: TEXT.requests, kind: "bar", of: (point) => point.requests }]
      : [{ name: TEXT.cost, kind: "bar", of: (point) => point.cost }];
    const shown = free ? values.map((_, place) => byTime.get(from + place * DAY)?.requests ?? 0) : values;
    return button(
      spark(shown),
      () => {
        const dialog = openDialog(TEXT.spendingOf(name),
          chart(TEXT.spending, points, { from, to, step: DAY }, series, free ? number : dollars),
          button(TEXT.close, () => dialog.close()));
      },
      { class: "plain curve", "aria-label": TEXT.spendingOf(name), title: TEXT.spendingOf(name) },
    );
  }

  #actions(key, name) {
    if (key.source === "template") return element("p", { class: "actions quiet" }, TEXT.inTemplate);
    if (key.revoked) return element("p", { class: "actions" });
    const named = (text) => ({ class: "small", "aria-label": `${text} ${name}` });
    const act = async (question, text, path, method) => {
      if (!(await confirmed(question, text))) return;
      await attempt(async () => {
        const told = await askAdmin(path, { method });
        await this.look();
        if (told.key) showSecret(told);
      });
    };
    const path = `keys/${encodeURIComponent(key.id)}`;
    return element("p", { class: "actions" },
      button(TEXT.change, () => edit(key, this.#teamNames(), () => this.look()), named(TEXT.change)),
      button(TEXT.rotate, () => act(TEXT.askRotate(name), TEXT.rotate, `${path}/rotate`, "POST"), named(TEXT.rotate)),
      button(TEXT.revoke, () => act(TEXT.askRevoke(name), TEXT.revoke, path, "DELETE"), { ...named(TEXT.revoke), class: "small danger" }));
  }
}

// Of a team what it has not is not said: most have either.
const uses = (team) => [...(team.budget ? budgetOf(team.id, team) : []), ...(team.limits ? limitsOf(team.id, team) : [])];

function budgetOf(name, { standing, budget, state }) {
  if (state === "revoked") return [];
  const found = budgetIn(standing);
  if (found) return budgetShown(name, found);
  return [element("p", { class: "quiet" }, budget && standing === null ? TEXT.unknown : TEXT.noBudget)];
}

function limitsOf(name, { standing, limits, state }) {
  if (state === "revoked") return [];
  const found = standing?.filter(({ resource }) => resource !== "budget") ?? [];
  if (!found.length) return limits && standing === null ? [] : [element("p", { class: "quiet" }, TEXT.noLimit)];
  return found.map(({ resource, used, reserved, limit }) =>
    bar(TEXT.limitOf(resource, name), used + reserved, limit, TEXT.limit(Math.round(used + reserved), limit, resource)));
}
