// Talking to one model, or to two side by side.

import { Failure, apiKey, ask } from "./api.js";
import { Column } from "./column.js";
import * as conversations from "./conversations.js";
import { announce, button, confirmed, copy, element, labelled, openDialog } from "./dom.js";
import { handedOver } from "./handover.js";
import { keyForm } from "./key_form.js";
import { settingsForm } from "./settings.js";
import { snippets } from "./snippets.js";

const TITLE_LENGTH = 60;
const SAVE_MS = 300;

/** Show it in `main`; what it gives ends it. */
export async function playground(main) {
  let models;
  try {
    models = (await (await ask("v1/models")).json()).data.map((model) => model.id);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const again = () => playground(main);
    main.replaceChildren(
      element("h2", {}, "Playground"),
      error.status === 401
        ? keyForm("API key", apiKey, again, error.message)
        : element("div", { class: "failure", role: "alert" }, element("p", {}, error.message), button("Try again", again)),
    );
    return () => {};
  }
  const page = new Playground(main, models);
  await page.start();
  return () => page.stop();
}

class Playground {
  #images = [];
  #saving = 0;
  #unsaved = new Set();

  constructor(main, models) {
    Object.assign(this, { main, models });
  }

  async start() {
    this.kept = await conversations.list();
    this.open(handedOver() ?? this.kept[0] ?? conversations.fresh());
  }

  /** Leave it: what is streamed stops, what is not saved yet is. */
  async stop() {
    await Promise.all(this.columns.map((column) => column.stop()));
    await this.#save();
  }

  open(conversation) {
    this.columns?.forEach((column) => column.stop());
    this.conversation = conversation;
    this.columns = conversation.columns.map((kept, place) => this.#column(conversation, place));
    this.#layOut();
  }

  #column(conversation, place) {
    const kept = conversation.columns[place];
    return new Column(kept, this.models, () => conversation.settings, () => this.#changed(conversation), {
      place,
      other: place ? conversation.columns[0].model : "",
    });
  }

  #layOut() {
    this.sides = element("div", { class: "sides" });
    this.list = element("ul", { class: "conversations" });
    this.form = this.#composer();
    const isWide = matchMedia("(min-width: 1000px)").matches;
    this.main.replaceChildren(
      element(
        "div",
        { class: "playground" },
        element(
          "details",
          { class: "panel past", open: isWide },
          element("summary", {}, "Conversations"),
          button("New conversation", () => this.open(this.#fresh())),
          this.list,
        ),
        element(
          "div",
          { class: "talk" },
          element(
            "div",
            { class: "row head" },
            element("h2", {}, "Playground"),
            (this.comparing = button("", () => this.#compare())),
            button("Copy as code", () => this.#showCode()),
            apiKey.get() && button("Forget the key", () => { apiKey.set(""); location.reload(); }),
          ),
          this.sides,
          this.form,
        ),
        element(
          "details",
          { class: "panel options", open: isWide },
          element("summary", {}, "Settings"),
          settingsForm(this.conversation.settings, () => this.#saveSoon(this.conversation)),
        ),
      ),
    );
    this.#showSides();
    this.#showList();
  }

  #fresh() {
    const conversation = conversations.fresh();
    conversation.columns = this.conversation.columns.map(({ model }) => ({ model, messages: [] }));
    conversation.settings = { ...this.conversation.settings };
    return conversation;
  }

  // What is said ----------------------------------------------------------------------------------

  #composer() {
    this.text = element("textarea", {
      rows: "3",
      placeholder: "Enter sends, Shift+Enter is a new line",
      onkeydown: (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        this.form.requestSubmit();
      },
      onpaste: (event) => this.#attach(event.clipboardData.files),
    });
    this.files = element("input", {
      type: "file",
      accept: "image/*",
      multiple: true,
      onchange: () => { this.#attach(this.files.files); this.files.value = ""; },
    });
    this.attached = element("ul", { class: "attached" });
    this.problem = element("p", { class: "problem", role: "alert" });
    this.sending = element("button", { class: "primary" }, "Send");
    this.stopping = button("Stop", () => this.columns.forEach((column) => column.stop()), { hidden: true });
    return element(
      "form",
      {
        class: "composer",
        onsubmit: (event) => { event.preventDefault(); this.#send(); },
        ondragover: (event) => event.preventDefault(),
        ondrop: (event) => { event.preventDefault(); this.#attach(event.dataTransfer.files); },
      },
      labelled("Message", this.text),
      this.attached,
      this.problem,
      element("div", { class: "row" }, this.sending, this.stopping, labelled("Images", this.files)),
    );
  }

  async #attach(files) {
    // A copy, as the list is emptied with its field.
    for (const file of [...files].filter(({ type }) => type.startsWith("image/"))) {
      this.#images.push({ name: file.name, url: await dataUrl(file) });
    }
    this.#showImages();
  }

  #showImages() {
    this.attached.replaceChildren(
      ...this.#images.map((image) =>
        element(
          "li",
          {},
          element("img", { src: image.url, alt: image.name }),
          button("Remove", () => { this.#images = this.#images.filter((each) => each !== image); this.#showImages(); },
            { class: "small", "aria-label": `Remove ${image.name}` }),
        )),
    );
  }

  #message() {
    const text = this.text.value;
    if (!this.#images.length) return { role: "user", content: text };
    const images = this.#images.map(({ url }) => ({ type: "image_url", image_url: { url } }));
    return { role: "user", content: [...(text ? [{ type: "text", text }] : []), ...images] };
  }

  #send() {
    const obstacle = this.columns.map((column) => column.obstacle).find(Boolean);
    if (this.isBusy || (!this.text.value.trim() && !this.#images.length)) return;
    const message = this.#message();
    try {
      if (obstacle) throw new Failure(obstacle);
      this.columns.forEach((column) => column.request([message]));
    } catch (error) {
      this.problem.textContent = error.message;
      return;
    }
    this.problem.textContent = "";
    this.conversation.title ||= (this.text.value.trim() || "An image").slice(0, TITLE_LENGTH);
    this.text.value = "";
    this.#images = [];
    this.#showImages();
    announce("Answering");
    this.columns.forEach((column) => column.say(structuredClone(message)));
  }

  get isBusy() {
    return this.columns.some((column) => column.isBusy);
  }

  #compare() {
    const { columns } = this.conversation;
    if (columns.length > 1) {
      this.columns.pop().stop();
      columns.pop();
    } else {
      // The other side begins with what was said so far, and goes its own way from there.
      columns.push({ model: "", messages: structuredClone(columns[0].messages) });
      this.columns.push(this.#column(this.conversation, 1));
    }
    this.#showSides();
    this.#changed(this.conversation);
  }

  #showSides() {
    this.sides.replaceChildren(...this.columns.map((column) => column.root));
    this.comparing.textContent = this.columns.length > 1 ? "One model" : "Compare two models";
  }

  // What is kept ----------------------------------------------------------------------------------

  #changed(conversation) {
    this.sending.disabled = this.isBusy;
    this.stopping.hidden = !this.isBusy;
    this.#saveSoon(conversation);
  }

  #saveSoon(conversation) {
    this.#unsaved.add(conversation);
    clearTimeout(this.#saving);
    this.#saving = setTimeout(() => this.#save(), SAVE_MS);
  }

  async #save() {
    clearTimeout(this.#saving);
    const worth = [...this.#unsaved].filter(({ columns }) => columns.some((column) => column.messages.length));
    this.#unsaved.clear();
    const kept = await Promise.all(worth.map(conversations.save));
    if (kept.includes(false)) this.problem.textContent = "The browser keeps no conversations for this page.";
    this.kept = await conversations.list();
    this.#showList();
  }

  #showList() {
    this.list.replaceChildren(
      ...this.kept.map((each) =>
        element(
          "li",
          {},
          button(each.title || "Untitled", () => this.open(each), {
            class: "plain",
            "aria-current": each.id === this.conversation.id ? "true" : null,
          }),
          button("Delete", async () => {
            if (!(await confirmed(`Delete the conversation “${each.title}”?`, "Delete"))) return;
            await conversations.remove(each.id);
            this.kept = await conversations.list();
            if (each.id === this.conversation.id) this.open(this.#fresh());
            else this.#showList();
          }, { class: "small", "aria-label": `Delete ${each.title}` }),
        )),
    );
  }

  // Code ------------------------------------------------------------------------------------------

  #showCode() {
    let written;
    try {
      const typed = this.text.value.trim() || this.#images.length ? [this.#message()] : [];
      written = snippets(this.columns[0].request(typed), new URL("v1", document.baseURI).href);
    } catch (error) {
      this.problem.textContent = error.message;
      return;
    }
    const dialog = openDialog(
      "The same as code",
      ...Object.entries(written).map(([language, code], place) =>
        element(
          "details",
          { open: place === 0, name: "language" },
          element("summary", {}, language),
          element("pre", { tabindex: "0", role: "region", "aria-label": `${language} code` }, code),
          button(`Copy as ${language}`, () => copy(code)),
        )),
      element("p", { class: "row" }, button("Close", () => dialog.close())),
    );
  }
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
