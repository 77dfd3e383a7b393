// What went wrong, as it is shown in every room, and where a request's id leads.

import { element } from "./dom.js";
import { WORDS } from "./strings.js";

/** The address of the page of one request. */
const addressOf = (requestId) => `#/requests/${encodeURIComponent(requestId)}`;

/** A link to it; its text is the id, unless it is given. */
export const requestLink = (requestId, text) =>
  element("a", { href: addressOf(requestId), title: text && requestId }, text ?? element("code", {}, requestId));

/** What is said of an error, with the way to its request; `more` stands below. */
export const failure = (error, ...more) =>
  element(
    "div",
    { class: "failure", role: "alert" },
    element("p", {}, error.message),
    error.requestId && element("p", { class: "quiet" }, WORDS.failure.request, " ", requestLink(error.requestId)),
    ...more,
  );
