// Looking again and again, as long as somebody does; and saying since when nothing was seen.

import { Failure } from "./api.js";
import { LANGUAGE } from "./formats.js";
import { WORDS } from "./strings.js";

/** Whose failure is shown; null where what is shown is how it is. */
let failing = null;

/** Do `work` every `ms` while the page is seen, until `ended`, an `AbortSignal`. */
export function every(ms, work, ended) {
  if (ended.aborted) return;
  let seen = new Date();
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      await work();
      seen = new Date();
      if (failing === timer) tell(null, "");
    } catch (error) {
      if (ended.aborted) return;
      if (!(error instanceof Failure)) throw error;
      // It may be away for a moment, or restart: the next look tells.
      if (failing === null || failing === timer) tell(timer, `${error.message} ${WORDS.looking.stale(seen.toLocaleTimeString(LANGUAGE, { hour12: false }))}`);
    }
  }, ms);
  ended.addEventListener("abort", () => {
    clearInterval(timer);
    if (failing === timer) tell(null, "");
  });
}

function tell(who, text) {
  failing = who;
  const place = document.getElementById("away");
  if (place.textContent !== text) place.textContent = text;
}
