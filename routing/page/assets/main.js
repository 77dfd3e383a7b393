// The views, by what stands after the `#` of the address.

import { batches } from "./batches.js";
import { element } from "./dom.js";
import { LANGUAGE } from "./formats.js";
import { keys } from "./keys.js";
import { models } from "./models.js";
import { overview } from "./overview.js";
import { playground } from "./playground.js";
import { requests } from "./requests.js";
import { WORDS } from "./strings.js";
import { template } from "./template.js";

const TEXT = WORDS.page;

const VIEWS = { "#/playground": playground, "#/overview": overview, "#/requests": requests, "#/models": models, "#/batches": batches, "#/keys": keys, "#/template": template };
const FIRST = "#/playground";
/** An empty page says that something is coming after so long. */
const PATIENCE_MS = 300;
const THEME_KEY = "llama-compat-theme";

const main = document.getElementById("main");
const skip = document.querySelector(".skip");
/** What a room that streams has to end itself; what it asks for and looks at ends by its signal. */
let leave = () => {};
let room = new AbortController();

/** `#/requests/ID?since=1d`: the view, what is named in it, and what is asked of it. */
function readAddress() {
  const [path, asked = ""] = location.hash.split("?", 2);
  const [, room = "", ...names] = path.split("/");
  const address = `#/${room}` in VIEWS ? `#/${room}` : FIRST;
  return { address, rest: decoded(names.join("/")), query: new URLSearchParams(asked) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function show({ byPerson = true } = {}) {
  const { address, ...more } = readAddress();
  const ending = left();
  const { signal: ended } = (room = new AbortController());
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === address;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (isHere) document.title = `${link.textContent} – llama_compat`;
  }
  // One that is slow must not write over the view that came after it.
  const place = element("div", { class: "view" });
  main.replaceChildren(place);
  if (byPerson) main.focus();
  await ending;
  if (ended.aborted) return;
  setTimeout(() => { if (!place.hasChildNodes()) place.append(element("p", { class: "quiet", role: "status" }, TEXT.waiting)); }, PATIENCE_MS);
  try {
    const end = await VIEWS[address](place, { ...more, ended });
    if (!end) return;
    if (ended.aborted) end();
    else leave = end;
  } catch (error) {
    if (!ended.aborted) throw error;
  }
}

/** Nobody is in the room any more: nothing there is asked for or looked at again. */
function left() {
  room.abort();
  const ending = leave();
  leave = () => {};
  return ending;
}

/** The words of what is there whatever the view. */
function setFrame() {
  document.documentElement.lang = LANGUAGE;
  skip.textContent = TEXT.skip;
  const rooms = document.querySelector("nav");
  rooms.setAttribute("aria-label", TEXT.views);
  rooms.append(...Object.entries(TEXT.rooms).map(([href, text]) => element("a", { href }, text)));
  document.querySelector(".theme span").textContent = TEXT.theme;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

setFrame();
const choice = document.getElementById("theme");
choice.append(...Object.entries(TEXT.themes).map(([value, text]) => element("option", { value }, text)));
choice.value = localStorage.getItem(THEME_KEY) ?? "";
setTheme(choice.value);
choice.addEventListener("change", () => {
  localStorage.setItem(THEME_KEY, choice.value);
  setTheme(choice.value);
});

skip.addEventListener("click", (event) => {
  // The address says which view there is, so that a link into the page can't.
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show());
addEventListener("pagehide", left);
show({ byPerson: false });
