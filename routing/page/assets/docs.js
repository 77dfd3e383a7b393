// The API's documentation, drawn by Swagger UI with the key that this tab has.

import { Failure, apiKey, ask } from "./api.js";
import { button, element } from "./dom.js";
import { LANGUAGE } from "./formats.js";
import { keyForm } from "./key_form.js";
import { WORDS } from "./strings.js";

const TEXT = WORDS.docs;

const nav = document.querySelector("nav");
nav.setAttribute("aria-label", WORDS.page.views);
nav.append(element("a", { href: ".#/playground" }, TEXT.back));
document.documentElement.lang = LANGUAGE;
document.title = `${TEXT.title} – llama_compat`;
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
    spec: asDrawn(spec),
    domNode: place,
    deepLinking: false,
    docExpansion: "list",
    // There are more than a thousand schemas. Those of a call are shown with it.
    defaultModelsExpandDepth: -1,
    presets: [globalThis.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    // They stand below a heading of the first level.
    onComplete: () => place.querySelectorAll("h3.opblock-tag").forEach((each) => each.setAttribute("aria-level", "2")),
    // What is tried out takes the key with it, as the page's own requests do.
    requestInterceptor: (request) => {
      if (apiKey.get() && !request.headers.authorization) request.headers.authorization = `Bearer ${apiKey.get()}`;
      return request;
    },
  });
}

/**
 * The document as OpenAPI 3.0 would have it, for drawing alone: of one of 3.1 Swagger UI resolves
 * every schema before it draws anything, which takes several seconds, and of this one those of a
 * call when it is opened.
 */
function asDrawn(spec) {
  return { ...older(spec), openapi: "3.0.3" };
}

function older(value) {
  if (Array.isArray(value)) return value.map(older);
  if (value === null || typeof value !== "object") return value;
  const made = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, older(each)]));
  for (const kind of ["anyOf", "oneOf"]) {
    if (!Array.isArray(value[kind]) || !value[kind].some(isNull)) continue;
    const others = made[kind].filter((each) => !isNull(each));
    delete made[kind];
    // A reference has nothing beside it in 3.0.
    if (others.length === 1 && !others[0].$ref) Object.assign(made, { ...others[0], ...made });
    else if (others.length === 1) made.allOf = others;
    else made[kind] = others;
    made.nullable = true;
  }
  if ("const" in value && typeof value.const !== "object") {
    delete made.const;
    made.enum = [value.const];
  }
  return made;
}

const isNull = (schema) => schema !== null && schema.type === "null";

show();
