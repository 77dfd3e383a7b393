"""`init`: a template of what is found on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from routing.cli.terminal import fail, harmless, load, print_

if TYPE_CHECKING:
    from routing.cli.machine.discovery import Source

STARTER = "starter"


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")] = Path(
        "llama-compat.yaml"
    ),
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Use all that is found, without asking.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Write over a file that is there.")] = False,
) -> None:
    """Look what there is on this machine, and write a template of it."""
    from routing.cli.machine.discovery import local_servers, vendors_in

    asks = not yes
    if asks and not sys.stdin.isatty():
        fail("There is nobody to ask here; to use all that is found: llama-compat init --yes")
    if file.exists() and not force:
        fail(f"{file} is there already. Name another file, or write over it with --force.")
    found = [*local_servers(), *vendors_in(os.environ)]
    chosen = [each for each in found if not asks or _wanted(f"{each.name} ({each.why})")]
    if not found:
        print_("No vendor's key is in the environment, and no server answers at its usual port.")
    runs_here = importlib.util.find_spec("torch") is not None
    starter = runs_here and (_wanted("a small model in this process") if asks else not chosen)
    admin_key = f"sk-admin-{secrets.token_urlsafe(24)}" if not asks or _wanted(_PAGE) else None
    only_keys = asks and admin_key is not None and _wanted(_KEYS, default=False)
    text = template_of(chosen, starter=starter, admin_key=admin_key, stored_keys=only_keys)
    try:
        with file.open("w", encoding="utf-8") as made:
            if admin_key is not None:
                file.chmod(0o600)  # nobody else on this machine has to know it
            made.write(text)
    except OSError as error:
        fail(f"{file} can't be written: {error.strerror or error}.")
    load(str(file))
    for each in chosen:
        print_(f"  {each.id}: {each.name} ({each.why})")
    # What is to be copied has a line of its own.
    print_(f"{file} is written. Look at it, and then:\n\n  llama-compat run {quote(str(file))}\n")
    if admin_key is not None:
        print_(f"Its page is at http://127.0.0.1:8321/ then, with this key:\n\n  {admin_key}\n")
    if only_keys:
        print_("Nobody else gets in without a key. Make one:\n\n  llama-compat keys create NAME\n")


def _wanted(what: str, *, default: bool = True) -> bool:
    return typer.confirm(harmless(f"Use {what}?"), default=default)


_BEGINNING = """\
# Written by `llama-compat init`, of what was found on this machine; keep what you use
version: 1

server:
  host: 127.0.0.1   # this machine alone; 0.0.0.0 for every network
  port: 8321
  # api_keys: ["${env.LLAMA_COMPAT_KEY}"]   # clients send one as 'Authorization: Bearer KEY'
"""

_FOR_THE_PAGE = """\
  admin_key: {}   # opens the page's rooms, and /admin
  records: {{}}   # what was asked and what it cost: `llama-compat usage`, and the page
  {}stored_keys: true   # lets in only whom `llama-compat keys create` has made a key
"""

_PAGE = "records of requests, and an admin key for the page"

_KEYS = "keys that you make for people, and let nobody in without one"

_DISCOVERED = """\
# `models: discover` offers whatever a provider lists, as PROVIDER/MODEL.
"""

_NO_PROVIDER = """\
# It repeats what it is told, for trying clients out; `llama-compat list` shows what else there is.
"""

_STARTER_MODEL = """\
  - id: SmolLM2-135M-Instruct
    provider: torch
    provider_model: starter   # or hf:ORG/NAME, or the path of a model's folder
    context_length: 2048      # prompt and completion together, if less than the model's own
    aliases: [starter]
"""


def template_of(
    sources: Sequence[Source],
    *,
    starter: bool,
    admin_key: str | None = None,
    stored_keys: bool = False,
) -> str:
    """A template, with comments, that offers what `sources` have.

    Args:
        sources: the providers.
        starter: whether to run the starter model in this process too.
        admin_key: opens the page's rooms, in which are the records of requests; None for neither.
        stored_keys: whether nobody gets in without a key that was made for them.
    """
    providers = [_provider(each) for each in sources]
    if starter:
        providers.append(
            "  - id: torch   # models in this process, on a GPU or a CPU\n    type: local::torch\n"
        )
    models = _STARTER_MODEL if starter else ""
    note = _DISCOVERED if sources else ""
    if not providers:
        note, models = _NO_PROVIDER, "  - id: echo\n    provider: echo\n"
        providers.append("  - id: echo\n    type: local::echo\n")
    short = _short_name(sources)
    if models:
        models = f"\nmodels:\n{models}{_commented(short)}"
    elif short:
        models = f"\n# A name of your own for a model:\n# models:\n{_commented(short)}"
    beginning = _BEGINNING
    if admin_key is not None:
        beginning += _FOR_THE_PAGE.format(admin_key, "" if stored_keys else "# ")
    return f"{beginning}\n{note}providers:\n{''.join(providers)}{models}"


def _provider(source: Source) -> str:
    # Where what it is called has what YAML would take for something else, it stands in quotes.
    config = [f'api_key: "${{env.{source.key_variable}}}"'] if source.key_variable else []
    if source.base_url:
        config.append(f"base_url: {json.dumps(source.base_url)}")
    config.append("models: discover")
    return (
        f"  - id: {source.id}   # {source.name}\n"
        f"    type: {source.type}\n"
        f"    config: {{{', '.join(config)}}}\n"
    )


def _short_name(sources: Sequence[Source]) -> str:
    """The entry of a model that one of `sources` has, under a shorter name."""
    for each in sources:
        if each.models:
            named = json.dumps(each.models[0])
            return f"  - id: fast\n    provider: {each.id}\n    provider_model: {named}\n"
    return ""


def _commented(text: str) -> str:
    return "".join(f"#{line}" for line in text.splitlines(keepends=True))
