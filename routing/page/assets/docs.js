// The API's documentation, drawn by Swagger UI with the key that this tab has.

import { Failure, apiKey, ask } from "./api.js";
import { button, element } from "./dom.js";
import { keyForm } from "./key_form.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.docs;

const main = document.getElementById("main");
// Swagger UI has light colours alone.
document.documentElement.dataset.theme = "light";

async function show() {
  main.replaceChildren(element("p", { class: "quiet" }, TEXT.loading));
  let spec;
  try {
    spec = await (await ask("openapi.json")).json();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    main.replaceChildren(
      element("h2", {}, TEXT.title),
      ...(error.status === 401
        ? [keyForm("api", apiKey, show, error.message)]
        : [element("p", { class: "failure", role: "alert" }, error.message), button(TEXT.again, show)]));
    return;
  }
  const place = element("div", { id: "swagger-ui" });
  main.replaceChildren(place);
  globalThis.SwaggerUIBundle({
    spec,
    domNode: place,
    deepLinking: false,
    docExpansion: "list",
    presets: [globalThis.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    // What is tried out takes the key with it, as the page's own requests do.
    requestInterceptor: (request) => {
      if (apiKey.get() && !request.headers.authorization) request.headers.authorization = `Bearer ${apiKey.get()}`;
      return request;
    },
  });
}

show();
