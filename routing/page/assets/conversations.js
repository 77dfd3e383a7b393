// Conversations, kept in this browser: IndexedDB has room for their images.

const NAME = "llama-compat", STORE = "conversations";

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

let database = null;

async function inStore(mode, work) {
  database ??= opened();
  const transaction = (await database).transaction(STORE, mode);
  const request = work(transaction.objectStore(STORE));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

/** All of them, the latest first; none where the browser keeps nothing for this page. */
export async function list() {
  const all = await inStore("readonly", (store) => store.getAll()).catch(() => []);
  return all.sort((one, other) => other.updated - one.updated);
}

/** Whether it was kept. */
export const save = (conversation) =>
  inStore("readwrite", (store) => store.put({ ...conversation, updated: Date.now() })).then(() => true, () => false);

export const remove = (id) => inStore("readwrite", (store) => store.delete(id)).catch(() => {});

export const fresh = () => ({
  // Not `randomUUID`, which pages that came by plain HTTP from another machine do not have.
  id: Array.from(crypto.getRandomValues(new Uint32Array(4)), (each) => each.toString(36)).join(""),
  title: "",
  updated: 0,
  settings: {},
  columns: [{ model: "", messages: [] }],
});
