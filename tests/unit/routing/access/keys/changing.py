"""A process that changes keys side by side with others; its argument is the address of their
storage. On Linux it is forked from one that has imported all of this.

It says when it has the storage open, and then answers each line of JSON, a list of changes
(`[key, members]` to change one, `[key, null]` to revoke it, `[null, members]` to make one), with a
line of the ids of their keys. The changes of a line are made all at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from llama_compat.distribution import KeyGrant
from routing.access.keys.store import KEYS, KeyStore
from routing.storage.storage import open_storage
from tests.forked import become_what_is_asked_for


async def _change(store: KeyStore, key: str | None, members: dict[str, Any] | None) -> str:
    if key is None:
        made, _ = await store.create(KeyGrant.model_validate(members))
        return made.id
    if members is None:
        return (await store.revoke(key)).id
    return (await store.change(key, members)).id


async def _main(address: str) -> None:
    storage = open_storage(address, [KEYS])
    await storage.start()
    store = KeyStore(storage)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        changes = json.loads(line)
        ids = await asyncio.gather(*(_change(store, *each) for each in changes))
        print(json.dumps(ids), flush=True)
    await storage.stop()


if __name__ == "__main__":
    if sys.platform != "linux":
        asyncio.run(_main(sys.argv[1]))
    elif not os.fork():  # as in `tests.forked`
        become_what_is_asked_for(int(sys.argv[1]))
        asyncio.run(_main(sys.argv[1]))
