// Files that go along with a message: pictures, PDFs and sound as parts of it, text in its text.

import { t } from "./strings.js";

const MOST_MB = 20;

/** What OpenAI's API takes in a message, by type. */
const SOUNDS = { "audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3" };

/**
 * What goes into a message for a file.
 * @throws {TypeError} it is nothing that a model could read; the message says so.
 */
export async function attachment(file) {
  const { name } = file;
  if (file.size > MOST_MB * 2 ** 20) throw new TypeError(t("playground.tooLarge", { name, size: MOST_MB }));
  if (file.type.startsWith("image/")) {
    const url = await dataUrl(file);
    return { name, url, part: { type: "image_url", image_url: { url } } };
  }
  if (file.type in SOUNDS) {
    const [, data] = (await dataUrl(file)).split(",", 2);
    return { name, part: { type: "input_audio", input_audio: { data, format: SOUNDS[file.type] } } };
  }
  if (file.type === "application/pdf") {
    return { name, part: { type: "file", file: { filename: name, file_data: await dataUrl(file) } } };
  }
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new TypeError(t("playground.notText", { name }));
  }
  if (text.includes("\0")) throw new TypeError(t("playground.notText", { name }));
  return { name, part: { type: "text", text: fenced(name, text) } };
}

/** Text between more backticks than it has itself. */
function fenced(name, text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map(({ length }) => length));
  const fence = "`".repeat(longest + 1);
  return `${name}:\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
