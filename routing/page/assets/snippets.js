// The same request in other languages. Keys come from the environment.

/** Requests for a response say `input`. */
const isResponse = (body) => body.input !== undefined;

const LANGUAGES = { curl, Python: python, JavaScript: javascript };

/** Code that sends `body`, by language. */
export function snippets(body, baseUrl) {
  return Object.fromEntries(Object.entries(LANGUAGES).map(([name, write]) => [name, write(body, baseUrl)]));
}

function curl(body, baseUrl) {
  const data = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return [
    `curl ${body.stream ? "-N " : ""}${baseUrl}/${isResponse(body) ? "responses" : "chat/completions"} \\`,
    `  -H 'content-type: application/json' \\`,
    `  -H "authorization: Bearer $OPENAI_API_KEY" \\`,
    `  -d '${data}'`,
    "",
  ].join("\n");
}

// What OpenAI's clients know as arguments; everything else travels in the body as it is.
const KNOWN = new Set(
  ("model messages stream stream_options temperature top_p max_tokens seed presence_penalty frequency_penalty stop" +
    " reasoning_effort logprobs top_logprobs tools tool_choice response_format n user").split(" "),
);
const KNOWN_OF_RESPONSES = new Set(
  ("model input instructions stream store include temperature top_p max_output_tokens reasoning text top_logprobs" +
    " tools tool_choice").split(" "),
);

const PYTHON_LOOP = {
  chat: `for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
`,
  response: `for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
`,
};

const JAVASCRIPT_LOOP = {
  chat: `for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
`,
  response: `for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}
`,
};

function python(body, baseUrl) {
  const names = isResponse(body) ? KNOWN_OF_RESPONSES : KNOWN;
  const known = Object.entries(body).filter(([name]) => names.has(name));
  const others = Object.fromEntries(Object.entries(body).filter(([name]) => !names.has(name)));
  const lines = known.map(([name, value]) => `    ${name}=${pythonValue(value, "    ")},`);
  if (Object.keys(others).length) lines.push(`    extra_body=${pythonValue(others, "    ")},`);
  return `import os

from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(baseUrl)}, api_key=os.environ.get("OPENAI_API_KEY", "none"))
stream = client.${isResponse(body) ? "responses" : "chat.completions"}.create(
${lines.join("\n")}
)
${PYTHON_LOOP[isResponse(body) ? "response" : "chat"]}`;
}

function pythonValue(value, indent) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const items = Array.isArray(value)
    ? value.map((each) => pythonValue(each, inner))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonValue(each, inner)}`);
  return items.length ? `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}` : open + close;
}

function javascript(body, baseUrl) {
  const indented = JSON.stringify(body, null, 2);
  return `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)}, apiKey: process.env.OPENAI_API_KEY ?? "none" });
const stream = await client.${isResponse(body) ? "responses" : "chat.completions"}.create(${indented});
${JAVASCRIPT_LOOP[isResponse(body) ? "response" : "chat"]}`;
}
