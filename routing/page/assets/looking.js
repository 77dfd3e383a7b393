// Looking again and again, as long as somebody does.

import { Failure } from "./api.js";

/** Do `work` every `ms` while the page is seen, until `ended`, an `AbortSignal`. */
export function every(ms, work, ended) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      await work();
    } catch (error) {
      if (!ended.aborted && !(error instanceof Failure)) throw error;
      // The server is away for a moment, or restarts: the next look tells.
    }
  }, ms);
  ended.addEventListener("abort", () => clearInterval(timer));
}
