// Batches of all keys: how far they have come, what they have cost, and when they will have ended.

import { explain, failure, leave } from "./admin.js";
import { Failure, askAdmin } from "./api.js";
import { button, confirmed, dollars, element, number, openDialog, table } from "./dom.js";
import { every } from "./looking.js";

const LOOK_MS = 2000;

// Of those nobody knows yet how many lines they have, or there is nothing to be cancelled any more.
const RUNNING = new Set(["validating", "in_progress"]);

/** Show them in `main`; what it gives ends it. */
export async function batches(main) {
  const ended = new AbortController();
  const place = element("div", { class: "now-view" });
  let before = "";

  const look = async () => {
    const told = await askAdmin("batches", { signal: ended.signal });
    // What is the same is left alone: somebody may be selecting it, or be about to press a button.
    const now = JSON.stringify(told);
    if (now === before) return;
    before = now;
    const focused = document.activeElement?.getAttribute("aria-label");
    const scrolled = place.querySelector(".scroll")?.scrollLeft ?? 0;
    place.replaceChildren(shown(told, cancel));
    const scroll = place.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = scrolled;
    if (focused) [...place.querySelectorAll("[aria-label]")].find((each) => each.getAttribute("aria-label") === focused)?.focus({ preventScroll: true });
  };

  const cancel = async (batch) => {
    if (!(await confirmed(`End ${batch.id}? What was answered is kept.`, "Cancel the batch"))) return;
    try {
      await askAdmin(`batches/${encodeURIComponent(batch.id)}/cancel`, { method: "POST" });
      await look();
    } catch (error) {
      if (ended.signal.aborted) return;
      if (!(error instanceof Failure)) throw error;
      const dialog = openDialog("That did not work", failure(error), button("Close", () => dialog.close()));
    }
  };

  const show = async () => {
    try {
      await look();
    } catch (error) {
      if (!ended.signal.aborted) explain(main, "Batches", error, show);
      return;
    }
    main.replaceChildren(element("div", { class: "row head" }, element("h2", {}, "Batches"), leave()), place);
    every(LOOK_MS, look, ended.signal);
  };

  await show();
  return () => ended.abort();
}

const shown = ({ data, names }, cancel) =>
  table("All batches",
    ["Batch", "Key", "Model", "State", "Progress", "Failed", "Cost so far", "Begun", "Ends", "Do"],
    data.map((batch) => [
      element("code", {}, batch.id), names[batch.key] ?? batch.key, batch.model ?? "",
      element("span", { class: batch.status === "failed" ? "problem" : "" }, batch.status.replace("_", " ")),
      progress(batch), failed(batch), cost(batch), time(batch.created_at), ends(batch),
      RUNNING.has(batch.status)
        ? button("Cancel", () => cancel(batch), { class: "small danger", "aria-label": `Cancel ${batch.id}` })
        : "",
    ]),
    { empty: "There are no batches yet." });

/** A bar; one of which nobody knows how long it is while the input is being checked. */
function progress({ id, status, request_counts: { total, completed, failed: bad } }) {
  const done = completed + bad;
  const bar = element("progress", {
    "aria-label": `Progress of ${id}`,
    ...(status === "validating" ? {} : { max: Math.max(total, 1), value: total ? done : 1 }),
  });
  const words = status === "validating" ? "being checked" : `${number(done)} of ${number(total)}`;
  return element("span", { class: "progress" }, bar, words);
}

const failed = ({ request_counts: { failed: bad }, errors }) =>
  errors?.data?.length ? element("span", { class: "long" }, errors.data[0].message) : bad ? number(bad) : "";

const cost = ({ cost_usd: spent, unpriced_requests: unpriced }) =>
  `${dollars(spent)}${unpriced ? `, and ${number(unpriced)} of unknown price` : ""}`;

function ends({ ended_at: end, estimated_end_at: estimate }) {
  if (end) return time(end);
  return estimate ? `about ${time(estimate)}` : "";
}

const time = (seconds) => new Date(seconds * 1000).toLocaleString("en", { hour12: false });
