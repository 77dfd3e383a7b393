// Settings under a name, kept in this browser.

const KEY = "llama-compat-presets";

/** By name; none where the browser keeps nothing, or somebody else wrote there. */
export function all() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof found === "object" && found !== null && !Array.isArray(found) ? found : {};
  } catch {
    return {};
  }
}

/** Keep `settings` as `name`; whether the browser did. */
export const save = (name, settings) => written({ ...all(), [name]: settings });

export const remove = (name) => written(Object.fromEntries(Object.entries(all()).filter(([each]) => each !== name)));

function written(presets) {
  try {
    localStorage.setItem(KEY, JSON.stringify(presets));
    return true;
  } catch {
    return false;
  }
}
