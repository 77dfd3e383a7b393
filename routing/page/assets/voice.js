// Voice: what models write down of what is said, hear themselves, and read aloud.

import { Failure, ask } from "./api.js";
import { announce, button } from "./dom.js";
import { Recording } from "./microphone.js";
import { t } from "./strings.js";

export const DEFAULT_VOICE = "alloy";

/**
 * Who can do what with sound, by what the server's list of models says that each reads and gives.
 * @param {object[]} models of `v1/models`.
 * @returns {{writers: string[], listeners: Set<string>, speakers: string[]}} ids of those that write
 *   down what is said and do nothing else, of those that hear it in a conversation, and of those that
 *   read text aloud.
 */
export function abilities(models) {
  const told = models.map(({ id, architecture: { input_modalities: reads = [], output_modalities: gives = [] } = {} }) => ({ id, reads, gives }));
  const ids = (fits) => told.filter(fits).map(({ id }) => id);
  return {
    writers: ids(({ reads, gives }) => reads.includes("audio") && !reads.includes("text") && gives.includes("text")),
    listeners: new Set(ids(({ reads, gives }) => reads.includes("audio") && reads.includes("text") && gives.includes("text"))),
    speakers: ids(({ reads, gives }) => reads.includes("text") && gives.includes("audio") && !gives.includes("text")),
  };
}

/** The one that was chosen, while it is there. */
export const chosen = (wanted, offered) => (offered.includes(wanted) ? wanted : offered[0]);

/** A button that listens until it is pressed again; `onheard` is given what was said, as a file, and the signal by which nobody wants it any more. */
export class Listener {
  #recording = null;
  #isOpening = false;
  #left = new AbortController();

  constructor(words, onheard, onproblem) {
    Object.assign(this, { words, onheard, onproblem });
    this.button = button(t(words.begin), () => this.#press(), { "aria-pressed": "false" });
  }

  async #press() {
    if (this.#isOpening) return;
    this.onproblem("");
    this.#isOpening = true;
    try {
      if (this.#recording) await this.#heard();
      else {
        const recording = await Recording.open();
        // Who left while the browser asked whether it may listen does not want it to.
        if (this.#left.signal.aborted) return await recording.drop();
        this.#recording = recording;
        this.#show();
        announce(t("voice.listening"));
      }
    } catch (error) {
      if (this.#left.signal.aborted) return;
      if (!(error instanceof Failure)) throw error;
      this.onproblem(error.message);
    } finally {
      this.#isOpening = false;
    }
  }

  async #heard() {
    const recording = this.#recording;
    this.#recording = null;
    this.#show();
    this.button.disabled = true;
    try {
      await this.onheard(await recording.close(), this.#left.signal);
    } finally {
      this.button.disabled = false;
    }
  }

  #show() {
    const isOn = this.#recording !== null;
    this.button.textContent = t(isOn ? this.words.end : this.words.begin);
    this.button.setAttribute("aria-pressed", String(isOn));
    this.button.classList.toggle("listening", isOn);
  }

  /** Listen never again; what was said is forgotten. */
  async stop() {
    this.#left.abort();
    const recording = this.#recording;
    this.#recording = null;
    this.#show();
    await recording?.drop();
  }
}

/** What a model writes down of a sound, unless `signal` says that nobody wants it any more. */
export async function writtenDown(sound, model, signal) {
  const form = new FormData();
  form.append("model", model);
  form.append("file", sound, "dictation.wav");
  form.append("response_format", "json");
  const { text } = await (await ask("v1/audio/transcriptions", { method: "POST", body: form, signal })).json();
  return text.trim();
}

/** Reads replies aloud, one at a time. */
export class Reader {
  #leave = () => {};

  /**
   * @param {string[]} speakers models that can.
   * @param {() => object} settings of the conversation: `read_by` and `voice`.
   * @param {(problem: string) => void} onproblem
   */
  constructor(speakers, settings, onproblem) {
    Object.assign(this, { speakers, settings, onproblem });
  }

  /** A button that reads `text`, or ends it; null where no model can. */
  offer(text) {
    if (!this.speakers.length) return null;
    const pressed = button(t("voice.read"), () => {
      if (pressed.getAttribute("aria-pressed") === "true") this.stop();
      else this.#read(text, pressed);
    }, { class: "small", "aria-pressed": "false" });
    return pressed;
  }

  async #read(text, pressed) {
    this.stop();
    const aborter = new AbortController(), player = new Audio();
    const show = (isOn) => {
      pressed.textContent = t(isOn ? "voice.stopReading" : "voice.read");
      pressed.setAttribute("aria-pressed", String(isOn));
    };
    const end = (this.#leave = () => {
      this.#leave = () => {};
      aborter.abort();
      player.pause();
      if (player.src) URL.revokeObjectURL(player.src);
      show(false);
    });
    show(true);
    this.onproblem("");
    try {
      const { read_by: model, voice } = this.settings();
      const body = { model: chosen(model, this.speakers), input: text, voice: voice?.trim() || DEFAULT_VOICE };
      const sound = await (await ask("v1/audio/speech", { method: "POST", body, signal: aborter.signal })).blob();
      if (aborter.signal.aborted) return;
      player.addEventListener("ended", end);
      player.src = URL.createObjectURL(sound);
      await player.play();
    } catch (error) {
      if (aborter.signal.aborted) return;
      end();
      if (!(error instanceof Failure) && !(error instanceof DOMException)) throw error;
      this.onproblem(error instanceof Failure ? error.message : t("voice.notPlayed"));
    }
  }

  /** Read no more. */
  stop() {
    this.#leave();
  }
}
