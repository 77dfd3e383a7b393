// Batches of all keys: how far they have come, what they have cost, and when they will have ended.

import { attempt, explain, leave } from "./admin.js";
import { askAdmin } from "./api.js";
import { button, confirmed, element, focusIn, table } from "./dom.js";
import { dateTime, number } from "./formats.js";
import { every } from "./looking.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.batches;

const LOOK_MS = 2000;

// Of those nobody knows yet how many lines they have, or there is nothing to be cancelled any more.
const RUNNING = new Set(["validating", "in_progress"]);

/** Show them in `main`, until `ended`. */
export async function batches(main, { ended }) {
  const place = element("div", { class: "now-view" });
  let before = "";

  const look = async () => {
    const told = await askAdmin("batches", { signal: ended });
    // What is the same is left alone: somebody may be selecting it, or be about to press a button.
    const now = JSON.stringify(told);
    if (now === before) return;
    before = now;
    const refocus = focusIn(place);
    const scrolled = place.querySelector(".scroll")?.scrollLeft ?? 0;
    place.replaceChildren(shown(told, cancel));
    const scroll = place.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = scrolled;
    refocus(place);
  };

  const cancel = async (batch) => {
    if (!(await confirmed(TEXT.askCancel(batch.id), TEXT.doCancel))) return;
    await attempt(async () => {
      await askAdmin(`batches/${encodeURIComponent(batch.id)}/cancel`, { method: "POST" });
      if (!ended.aborted) await look();
    });
  };

  const show = async () => {
    try {
      await look();
    } catch (error) {
      if (!ended.aborted) explain(main, TEXT.title, error, show);
      return;
    }
    main.replaceChildren(element("div", { class: "row head" }, element("h2", {}, TEXT.title), leave()), place);
    every(LOOK_MS, look, ended);
  };

  await show();
}

const shown = ({ data, names }, cancel) =>
  table(TEXT.all, TEXT.heads,
    data.map((batch) => [
      element("code", {}, batch.id), names[batch.key] ?? batch.key, batch.model ?? "",
      element("span", { class: batch.status === "failed" ? "problem" : "" }, TEXT.states[batch.status] ?? batch.status),
      progress(batch), failed(batch), cost(batch), time(batch.created_at), ends(batch),
      RUNNING.has(batch.status)
        ? button(TEXT.cancel, () => cancel(batch), { class: "small danger", "aria-label": TEXT.cancelOf(batch.id) })
        : "",
    ]),
    { empty: TEXT.none });

/** A bar; one of which nobody knows how long it is while the input is being checked. */
function progress({ id, status, request_counts: { total, completed, failed: bad } }) {
  const done = completed + bad;
  const bar = element("progress", {
    "aria-label": TEXT.progressOf(id),
    ...(status === "validating" ? {} : { max: Math.max(total, 1), value: total ? done : 1 }),
  });
  const words = status === "validating" ? TEXT.checked : TEXT.done(done, total);
  return element("span", { class: "progress" }, bar, words);
}

const failed = ({ request_counts: { failed: bad }, errors }) =>
  errors?.data?.length ? element("span", { class: "long" }, errors.data[0].message) : bad ? number(bad) : "";

const cost = ({ cost_usd: spent, unpriced_requests: unpriced }) =>
  TEXT.cost(spent, unpriced);

function ends({ ended_at: end, estimated_end_at: estimate }) {
  if (end) return time(end);
  return estimate ? TEXT.about(time(estimate)) : "";
}

const time = (seconds) => dateTime(seconds * 1000);
