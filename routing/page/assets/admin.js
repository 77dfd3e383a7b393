// What the views have in common that are for whoever runs the server.

import { Failure, adminKey, ask } from "./api.js";
import { button, element, openDialog } from "./dom.js";
import { failure } from "./failure.js";
import { keyForm } from "./key_form.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.admin;

const HOW = `server:
  admin_key: "\${env.ADMIN_KEY}"
  records: {}          # ${TEXT.forOverview}
  stored_keys: true    # ${TEXT.forKeys}
  batches: {}          # ${TEXT.forBatches}`;

/** Say in `main` why `title` can't be shown; `again` shows it. A wrong key is asked for once more. */
export function explain(main, title, error, again) {
  if (!(error instanceof Failure)) throw error;
  const heading = element("h2", {}, title);
  if (error.status === 401) {
    main.replaceChildren(heading, keyForm("admin", adminKey, again, error.message));
  } else if (error.code === "admin_disabled") {
    main.replaceChildren(
      heading,
      element("p", {}, TEXT.disabled),
      element("pre", {}, HOW),
    );
  } else {
    main.replaceChildren(heading, failure(error), button(TEXT.again, again));
  }
}

/** A button that forgets the admin key. */
export const leave = () => button(TEXT.forget, () => { adminKey.set(""); location.reload(); });

/** Have the browser keep what the server answers at `path` as a file. */
export async function download(path, name) {
  const response = await ask(`admin/${path}`, { key: adminKey });
  const url = URL.createObjectURL(await response.blob());
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/** Do `work`, which a person has asked for; what goes wrong is said in a dialog, as long as they are in the room. */
export async function attempt(work) {
  try {
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Failure)) throw error;
    const dialog = openDialog(TEXT.failed, failure(error), button(TEXT.close, () => dialog.close()));
  }
}
