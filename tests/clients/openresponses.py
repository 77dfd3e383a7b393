"""The conformance suite of Open Responses against this server: `make conformance`.

`python -m tests.clients.openresponses FOLDER [--record FILE]`, where FOLDER is a checkout of
https://github.com/openresponses/openresponses in which `npm install bun zod@3` has been run. The
server stands before a chat-only vendor whose model follows a script, so that all is translated.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_compat import __version__
from tests.clients.scripted_models import Asked, Said, ScriptedModels
from tests.integration.server_process import running, write_template

TIMEOUT_SECONDS = 600

ANSWERS: Sequence[tuple[str, str]] = (
    (r"exactly 3 words", "Hello there, friend!"),
    (r"[Cc]ount from 1 to 5", "1, 2, 3, 4, 5"),
    (r"[Cc]ount from 1 to 3", "1, 2, 3"),
    (r"[Rr]epeat only the number", "four"),
    (r"pirate", "Ahoy, matey!"),
    (r"record of a conversation", "The launch is on Tuesday; support is notified before it."),
)
"""What the model says, by what it is asked."""


def model(asked: Asked) -> Said:
    """A model that answers the suite's prompts, and calls the tool that it is offered."""
    question = "\n".join(asked.texts)
    if asked.tools and not asked.outputs:
        name, tool = next(iter(asked.tools.items()))
        wanted = tool.get("parameters", {}).get("required", [])
        return Said(calls=[(name, dict.fromkeys(wanted, "San Francisco, CA"))])
    if asked.images:
        return Said("A red heart on a white background.")
    if named := re.search(r"My name is (\w+)", question):
        return Said(f"Your name is {named[1]}.")
    return Said(next((text for asks, text in ANSWERS if re.search(asks, question)), "OK."))


def find_bun(folder: Path) -> str | None:
    """Bun, in the checkout or on the PATH."""
    own = folder / "node_modules" / ".bin" / "bun"
    return str(own) if own.exists() else shutil.which("bun")


def run_suite(folder: Path, bun: str) -> list[dict[str, Any]]:
    """The results of all of the suite's tests, of this server before a model that follows a script.

    Raises:
        RuntimeError: the suite did not run.
    """
    with tempfile.TemporaryDirectory() as work, ScriptedModels(model) as vendor:
        template = write_template(
            Path(work) / "template.yaml",
            providers=[
                {
                    "id": "vendor",
                    "type": "remote::passthrough",
                    "config": {"base_url": vendor.url},
                }
            ],
            models=[{"id": "scripted", "provider": "vendor"}],
        )
        with running(template) as server:
            return results_of(f"{server.url}/v1", "scripted", folder, bun)


def results_of(base_url: str, model: str, folder: Path, bun: str) -> list[dict[str, Any]]:
    """The results of all of the suite's tests, of the server at `base_url`.

    Raises:
        RuntimeError: the suite did not run.
    """
    command = [bun, "run", "bin/compliance-test.ts", "--json", "--api-key", "none"]
    command += ["--base-url", base_url, "--model", model]
    ended = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    try:
        results = json.loads(ended.stdout)["results"]
    except (ValueError, KeyError):
        raise RuntimeError(f"the suite did not run:\n{ended.stdout}\n{ended.stderr}") from None
    assert isinstance(results, list)
    return results


def is_http(result: dict[str, Any]) -> bool:
    """Whether a test speaks HTTP, and no WebSocket."""
    return not str(result["id"]).startswith("websocket")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of the suite")
    parser.add_argument("--record", type=Path, help="write the results to this file")
    options = parser.parse_args()
    bun = find_bun(options.folder)
    if bun is None or not (options.folder / "bin" / "compliance-test.ts").exists():
        print(
            f"{options.folder} has to be a checkout of Open Responses in which"
            " `npm install bun zod@3` has been run.",
            file=sys.stderr,
        )
        return 2
    results = run_suite(options.folder, bun)
    for result in results:
        print(f"{result['status']:8} {result['id']}")
        for problem in result.get("errors") or ():
            print(f"         {problem}")
    passed = [result for result in results if result["status"] == "passed"]
    over_http = sum(map(is_http, passed))
    print(f"{len(passed)} of {len(results)} tests passed: {over_http} over HTTP,")
    print(f"{len(passed) - over_http} over WebSockets.")
    if options.record is not None:
        record(options.record, options.folder, results)
    return 0 if len(passed) == len(results) else 1


def record(file: Path, folder: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write what came out, and of what, to `file`."""
    results = sorted(results, key=lambda each: str(each["id"]))
    written = {
        "date": datetime.date.today().isoformat(),
        "llama_compat": __version__,
        "suite": "Open Responses",
        "suite_commit": suite_commit(folder),
        "http": {each["id"]: each["status"] for each in results if is_http(each)},
        "websocket": {each["id"]: each["status"] for each in results if not is_http(each)},
    }
    file.write_text(json.dumps(written, indent=2) + "\n")


def suite_commit(folder: Path) -> str | None:
    """Which suite it is."""
    commit = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return commit.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
