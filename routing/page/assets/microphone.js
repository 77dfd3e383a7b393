// The microphone: what is said into it as a file that every vendor reads.

import { Failure } from "./api.js";
import { t } from "./strings.js";

/** Of a second; speech needs no more, and models are made for it. */
const RATE = 16000;

const PCM = 1, MONO = 1, BYTES = 2, HEAD = 44;

/** One that runs, from `open` to `close` or `drop`. */
export class Recording {
  #recorder;
  #pieces = [];

  /** @throws {Failure} there is no microphone, or it is not for this page; the message says why. */
  static async open() {
    // Pages that came by plain HTTP from another machine have none.
    if (!navigator.mediaDevices) throw new Failure(t("voice.notSecure"));
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch (error) {
      throw new Failure(t(error.name === "NotFoundError" ? "voice.noMicrophone" : "voice.notAllowed"));
    }
    return new Recording(stream);
  }

  constructor(stream) {
    this.#recorder = new MediaRecorder(stream);
    this.#recorder.addEventListener("dataavailable", ({ data }) => this.#pieces.push(data));
    this.#recorder.start();
  }

  /** End it; what was said, as WAV. */
  async close() {
    await this.#end();
    return asWAV(await new Blob(this.#pieces).arrayBuffer());
  }

  /** End it, and forget what was said. */
  async drop() {
    await this.#end();
    this.#pieces = [];
  }

  async #end() {
    if (this.#recorder.state === "inactive") return;
    const ended = new Promise((resolve) => this.#recorder.addEventListener("stop", resolve, { once: true }));
    this.#recorder.stop();
    await ended;
    // The browser shows that it listens until then.
    this.#recorder.stream.getTracks().forEach((track) => track.stop());
  }
}

/** Sound of any kind that the browser can play as a WAV file: one channel, 16 bits. */
async function asWAV(sound) {
  let decoded;
  try {
    decoded = await new OfflineAudioContext(MONO, 1, RATE).decodeAudioData(sound);
  } catch {
    throw new Failure(t("voice.nothing"));
  }
  const mixer = new OfflineAudioContext(MONO, Math.max(1, Math.ceil(decoded.duration * RATE)), RATE);
  const source = new AudioBufferSourceNode(mixer, { buffer: decoded });
  source.connect(mixer.destination);
  source.start();
  const samples = (await mixer.startRendering()).getChannelData(0);
  return new Blob([head(samples.length * BYTES), Int16Array.from(samples, (each) => Math.max(-1, Math.min(1, each)) * 32767)], { type: "audio/wav" });
}

/** What a WAV file begins with (RIFF, little end first), before so many bytes of sound. */
function head(size) {
  const view = new DataView(new ArrayBuffer(HEAD));
  const letters = (at, text) => [...text].forEach((letter, place) => view.setUint8(at + place, letter.charCodeAt(0)));
  letters(0, "RIFF");
  view.setUint32(4, HEAD - 8 + size, true);
  letters(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, PCM, true);
  view.setUint16(22, MONO, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, RATE * BYTES, true);
  view.setUint16(32, BYTES, true);
  view.setUint16(34, BYTES * 8, true);
  letters(36, "data");
  view.setUint32(40, size, true);
  return view.buffer;
}
