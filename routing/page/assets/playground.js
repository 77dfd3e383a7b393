// Talking to one model, or to up to four side by side.

import { Failure, apiKey, ask } from "./api.js";
import { attachment } from "./attachments.js";
import { Column } from "./column.js";
import * as conversations from "./conversations.js";
import { announce, button, confirmed, copy, element, labelled, openDialog } from "./dom.js";
import { failure } from "./failure.js";
import { handedOver } from "./handover.js";
import { keyForm } from "./key_form.js";
import { presetsForm, settingsForm } from "./settings.js";
import { asJSON, asMarkdown, download, read } from "./sharing.js";
import { snippets } from "./snippets.js";
import { t } from "./strings.js";
import { Listener, Reader, abilities, chosen, writtenDown } from "./voice.js";

const TITLE_LENGTH = 60;
const SAVE_MS = 300;
const MOST_SIDES = 4;

/** Show it in `main`, until `ended`; what it gives ends what streams, and saves. */
export async function playground(main, { ended }) {
  let models;
  try {
    models = (await (await ask("v1/models", { signal: ended })).json()).data;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    // What begins once there is a key ends with the room as well: it is kept, and streams no more.
    let end = () => {};
    const again = async () => { end = await playground(main, { ended }); };
    main.replaceChildren(
      element("h2", {}, t("playground.title")),
      error.status === 401
        ? keyForm("api", apiKey, again, error.message)
        : failure(error, button(t("playground.again"), again)),
    );
    return () => end();
  }
  const page = new Playground(main, models);
  await page.start();
  return () => page.stop();
}

const soundFile = (sound) => new File([sound], t("voice.file"), { type: sound.type });

class Playground {
  #attached = [];
  #saving = 0;
  #unsaved = new Set();

  constructor(main, models) {
    this.main = main;
    this.models = models.map(({ id }) => id);
    this.voice = abilities(models);
    const tell = (problem) => { this.problem.textContent = problem; };
    this.reader = new Reader(this.voice.speakers, () => this.conversation.settings, tell);
    this.dictation = new Listener({ begin: "voice.dictate", end: "voice.endDictation" }, (sound, left) => this.#writeDown(sound, left), tell);
    this.recording = new Listener({ begin: "voice.record", end: "voice.endRecording" }, (sound) => this.#attach([soundFile(sound)]), tell);
  }

  async start() {
    this.kept = await conversations.list();
    this.open(handedOver() ?? this.kept[0] ?? conversations.fresh());
  }

  /** Leave it: what is streamed stops, what is not saved yet is. */
  async stop() {
    this.reader.stop();
    await Promise.all([this.dictation.stop(), this.recording.stop(), ...this.columns.map((column) => column.stop())]);
    await this.#save();
  }

  open(conversation) {
    this.reader.stop();
    this.columns?.forEach((column) => column.stop());
    this.conversation = conversation;
    this.columns = conversation.columns.map((kept, place) => this.#column(conversation, place));
    this.#layOut();
  }

  #column(conversation, place) {
    const kept = conversation.columns[place];
    return new Column(kept, this.models, () => conversation.settings, () => this.#changed(conversation), {
      place,
      others: conversation.columns.slice(0, place).map(({ model }) => model),
      onleave: place ? (column) => this.#without(column) : null,
      onbranch: (column, count) => this.#branch(column, count),
      reader: this.reader,
    });
  }

  #layOut() {
    this.sides = element("div", { class: "sides" });
    this.list = element("ul", { class: "conversations" });
    this.form = this.#composer();
    this.#showSettings();
    const isWide = matchMedia("(min-width: 1000px)").matches;
    this.main.replaceChildren(
      element(
        "div",
        { class: "playground" },
        element(
          "details",
          { class: "panel past", open: isWide },
          element("summary", {}, t("playground.conversations")),
          button(t("playground.fresh"), () => this.open(this.#fresh())),
          this.list,
        ),
        element(
          "div",
          { class: "talk" },
          element(
            "div",
            { class: "row head" },
            element("h2", {}, t("playground.title")),
            (this.comparing = button(t("playground.compare"), () => this.#compare())),
            button(t("playground.share"), () => this.#share()),
            button(t("playground.code"), () => this.#showCode()),
            apiKey.get() && button(t("playground.forget"), () => { apiKey.set(""); location.reload(); }),
          ),
          this.sides,
          this.form,
        ),
        element(
          "details",
          { class: "panel options", open: isWide },
          element("summary", {}, t("playground.settings")),
          this.#presets(),
          this.options,
        ),
      ),
    );
    this.#showSides();
    this.#showRecording();
    this.#showList();
  }

  #showSettings() {
    const form = settingsForm(this.conversation.settings, () => this.#saveSoon(this.conversation), this.voice);
    this.options?.replaceWith(form);
    this.options = form;
  }

  #presets() {
    return presetsForm(
      () => structuredClone(this.conversation.settings),
      (settings) => {
        // The columns look at the conversation's settings each time that they send.
        this.conversation.settings = settings;
        this.#showSettings();
        this.#saveSoon(this.conversation);
      },
    );
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
      placeholder: t("playground.hint"),
      onkeydown: (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        this.form.requestSubmit();
      },
      onpaste: (event) => this.#attach(event.clipboardData.files),
    });
    this.files = element("input", {
      type: "file",
      multiple: true,
      onchange: () => { this.#attach(this.files.files); this.files.value = ""; },
    });
    this.attached = element("ul", { class: "attached" });
    this.problem = element("p", { class: "problem", role: "alert" });
    this.sending = element("button", { class: "primary" }, t("playground.send"));
    this.stopping = button(t("playground.stop"), () => this.columns.forEach((column) => column.stop()), { hidden: true });
    return element(
      "form",
      {
        class: "composer",
        onsubmit: (event) => { event.preventDefault(); this.#send(); },
        ondragover: (event) => event.preventDefault(),
        ondrop: (event) => { event.preventDefault(); this.#attach(event.dataTransfer.files); },
      },
      labelled(t("playground.message"), this.text),
      this.attached,
      this.problem,
      element(
        "div",
        { class: "row" },
        this.sending,
        this.stopping,
        this.voice.writers.length > 0 && this.dictation.button,
        this.recording.button,
        labelled(t("playground.files"), this.files),
      ),
    );
  }

  /** Put what was dictated where the caret is. */
  async #writeDown(sound, left) {
    announce(t("voice.writing"));
    const said = await writtenDown(sound, chosen(this.conversation.settings.dictate_by, this.voice.writers), left);
    const { selectionStart: from, selectionEnd: to, value } = this.text;
    const gap = from && /\S/.test(value[from - 1]) ? " " : "";
    this.text.setRangeText(gap + said, from, to, "end");
    this.text.focus();
    announce(said || t("voice.nothing"));
  }

  /** Offer to record for models that hear. */
  #showRecording() {
    this.recording.button.hidden = !this.columns.some(({ kept }) => this.voice.listeners.has(kept.model));
  }

  async #attach(files) {
    this.problem.textContent = "";
    // A copy, as the list is emptied with its field.
    for (const file of [...files]) {
      try {
        this.#attached.push(await attachment(file));
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        this.problem.textContent = error.message;
      }
    }
    this.#showAttached();
  }

  #showAttached() {
    this.attached.replaceChildren(
      ...this.#attached.map((each) =>
        element(
          "li",
          {},
          each.url ? element("img", { src: each.url, alt: each.name }) : element("span", { class: "file" }, each.name),
          button(t("playground.remove"), () => { this.#attached = this.#attached.filter((other) => other !== each); this.#showAttached(); },
            { class: "small", "aria-label": t("playground.removeOf", { name: each.name }) }),
        )),
    );
  }

  #message() {
    const text = this.text.value;
    if (!this.#attached.length) return { role: "user", content: text };
    return { role: "user", content: [...(text ? [{ type: "text", text }] : []), ...this.#attached.map(({ part }) => part)] };
  }

  #send() {
    const obstacle = this.columns.map((column) => column.obstacle).find(Boolean);
    if (this.isBusy || (!this.text.value.trim() && !this.#attached.length)) return;
    const message = this.#message();
    try {
      if (obstacle) throw new Failure(obstacle);
      this.columns.forEach((column) => column.request([message]));
    } catch (error) {
      this.problem.textContent = error.message;
      return;
    }
    this.problem.textContent = "";
    this.conversation.title ||= (this.text.value.trim() || t("playground.fileTitle")).slice(0, TITLE_LENGTH);
    this.text.value = "";
    this.#attached = [];
    this.#showAttached();
    announce(t("playground.answering"));
    this.columns.forEach((column) => column.say(structuredClone(message)));
  }

  get isBusy() {
    return this.columns.some((column) => column.isBusy);
  }

  #compare() {
    const { columns } = this.conversation;
    if (columns.length >= MOST_SIDES) return;
    // The other side begins with what was said so far, and goes its own way from there.
    columns.push({ model: "", messages: structuredClone(columns[0].messages) });
    this.columns.push(this.#column(this.conversation, columns.length - 1));
    this.#showSides();
    this.#changed(this.conversation);
  }

  #without(column) {
    column.stop();
    const { conversation } = this;
    conversation.columns = conversation.columns.filter((kept) => kept !== column.kept);
    this.#saveSoon(conversation);
    // The sides are numbered, so that those behind it are made anew.
    this.open(conversation);
  }

  /** Go on from a column's first messages in a conversation of their own. */
  #branch(column, count) {
    const { title, settings } = this.conversation;
    const made = {
      ...conversations.fresh(),
      title: t("playground.branchOf", { title: title || t("playground.untitled") }).slice(0, TITLE_LENGTH),
      settings: structuredClone(settings),
      columns: [{ model: column.kept.model, messages: structuredClone(column.messages.slice(0, count)) }],
    };
    this.#saveSoon(made);
    this.open(made);
    this.text.focus();
  }

  #showSides() {
    this.sides.replaceChildren(...this.columns.map((column) => column.root));
    this.comparing.hidden = this.columns.length >= MOST_SIDES;
  }

  // Sharing ---------------------------------------------------------------------------------------

  #share() {
    const problem = element("p", { class: "problem", role: "alert" });
    const file = element("input", {
      type: "file",
      accept: ".json,application/json",
      onchange: async () => {
        try {
          const found = read(await file.files[0].text());
          this.#saveSoon(found);
          dialog.close();
          this.open(found);
        } catch (error) {
          if (!(error instanceof TypeError)) throw error;
          problem.textContent = error.message;
        }
      },
    });
    const hasSaid = this.conversation.columns.some(({ messages }) => messages.length);
    const name = (this.conversation.title || t("playground.untitled")).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, TITLE_LENGTH);
    const dialog = openDialog(
      t("playground.shareTitle"),
      element("p", { class: "quiet" }, t("playground.shareWhy")),
      element(
        "p",
        { class: "row" },
        button(t("playground.asJSON"), () => download(`${name}.json`, "application/json", asJSON(this.conversation)), { disabled: !hasSaid }),
        button(t("playground.asMarkdown"), () => download(`${name}.md`, "text/markdown", asMarkdown(this.conversation)), { disabled: !hasSaid }),
      ),
      labelled(t("playground.import"), file),
      problem,
      element("p", { class: "row" }, button(t("playground.close"), () => dialog.close())),
    );
  }

  // What is kept ----------------------------------------------------------------------------------

  #changed(conversation) {
    this.#showRecording();
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
    if (kept.includes(false)) this.problem.textContent = t("playground.notKept");
    this.kept = await conversations.list();
    this.#showList();
  }

  #showList() {
    this.list.replaceChildren(
      ...this.kept.map((each) =>
        element(
          "li",
          {},
          button(each.title || t("playground.untitled"), () => this.open(each), {
            class: "plain",
            "aria-current": each.id === this.conversation.id ? "true" : null,
          }),
          button(t("playground.delete"), async () => {
            if (!(await confirmed(t("playground.deleteAsk", { title: each.title }), t("playground.delete")))) return;
            await conversations.remove(each.id);
            this.kept = await conversations.list();
            if (each.id === this.conversation.id) this.open(this.#fresh());
            else this.#showList();
          }, { class: "small", "aria-label": t("playground.deleteOf", { title: each.title }) }),
        )),
    );
  }

  // Code ------------------------------------------------------------------------------------------

  #showCode() {
    let written;
    try {
      const typed = this.text.value.trim() || this.#attached.length ? [this.#message()] : [];
      written = snippets(this.columns[0].request(typed), new URL("v1", document.baseURI).href);
    } catch (error) {
      this.problem.textContent = error.message;
      return;
    }
    const dialog = openDialog(
      t("playground.codeTitle"),
      ...Object.entries(written).map(([language, code], place) =>
        element(
          "details",
          { open: place === 0, name: "language" },
          element("summary", {}, language),
          element("pre", { tabindex: "0", role: "region", "aria-label": t("playground.codeIn", { language }) }, code),
          button(t("playground.copyAs", { language }), () => copy(code)),
        )),
      element("p", { class: "row" }, button(t("playground.close"), () => dialog.close())),
    );
  }
}
