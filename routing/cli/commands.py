"""The commands: run, check, list, schema, pull, chat, status; others have modules of their own."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import closing, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from llama_compat import __version__
from routing.cli import completion, keys, model_templates, pulling
from routing.cli.deploying import deploy
from routing.cli.machine.bench import bench
from routing.cli.machine.doctor import doctor
from routing.cli.machine.init import init
from routing.cli.terminal import TemplateArgument
from routing.cli.terminal import fail as _fail
from routing.cli.terminal import load as _load
from routing.cli.terminal import print_ as _print
from routing.cli.terminal import table as _table
from routing.process.signals import reload_waits

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution
    from routing.process.watched_file import WatchedFile

app = typer.Typer(
    name="llama-compat",
    help="One OpenAI-compatible endpoint for every model.",
    no_args_is_help=True,
    # typer's tracebacks show local variables, and those hold keys.
    pretty_exceptions_enable=False,
)

app.add_typer(keys.app, name="keys")

app.command()(init)
app.command()(doctor)
app.command()(bench)

app.command()(deploy)


class LogFormat(StrEnum):
    """What the log can be written as."""

    text = "text"
    json = "json"


def main() -> None:
    """The console script."""
    app()


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """What can be said before a command, or without one."""
    if version:
        typer.echo(f"llama-compat {__version__}")
        raise typer.Exit


@app.command()
def run(
    template: Annotated[
        str,
        typer.Argument(
            metavar="TEMPLATE|MODEL",
            help="The name of a shipped template, or a YAML file; or a model as `pull` names it.",
            autocompletion=completion.templates,
        ),
    ],
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where to listen, if not as the file says."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="The same; 0 takes a free port."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Processes that share the port.")
    ] = 1,
    reload_on_change: Annotated[
        bool,
        typer.Option("--reload-on-change", help="Reload the file when it changes, as on SIGHUP."),
    ] = False,
    pull: Annotated[
        bool, typer.Option("--pull", help="Pull models that are missing, without asking.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Text for people, or one JSON object a line.")
    ] = LogFormat.text,
) -> None:
    """Serve a distribution, or a model by itself, until Ctrl-C or SIGTERM."""
    given, template = template, model_templates.file_of(template)
    if given != template:
        _print(f"{given} is served by {template}, which you may change.")
    watched = _watched(template) if reload_on_change else None
    from providers.imports import importing

    # One that comes before there is a server concerns a template that may have been read already.
    with reload_waits():
        with importing():
            distribution = _load(template)
        pulling.pull_missing(distribution, asked_to=pull)
        if workers == 1:  # those that are forked load it themselves
            _load_ahead(distribution)
        with importing():
            from providers.base import ProviderStartError
            from routing.observability.request_line import LOG_FORMAT
            from routing.process.server import ServerStartError, serve

        os.environ[LOG_FORMAT] = log_format.value  # for the workers too
        try:
            code = serve(
                distribution,
                source=template,
                host=host,
                port=port,
                workers=workers,
                watched=watched,
            )
        except (ProviderStartError, ServerStartError) as error:
            _fail(error)
    _end(code)


def _end(code: int) -> NoReturn:
    from providers.local.torch_engine import lost_devices

    if lost_devices.lost():
        # What is taken apart as an interpreter ends would ask the GPU, and abort the process.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)


def _load_ahead(distribution: Distribution) -> None:
    from providers.registry import provider_type

    for each in distribution.providers:
        if each.replicas is None:
            provider_type(each.type).provider.load_ahead()


@app.command()
def check(
    template: TemplateArgument,
    live: Annotated[bool, typer.Option(help="Also ask every remote for its models.")] = False,
) -> None:
    """Say what is wrong with a template, or what it offers."""
    distribution = _load(template)
    if live:
        _check_live(distribution)
    else:
        _show(template, distribution)


@app.command("list")
def list_() -> None:
    """Show the templates that ship."""
    from llama_compat.distribution import list_templates

    table = _table("Template", "What it serves")
    for name, description in list_templates():
        table.add_row(name, description)
    _print(table)
    _print("Serve one:  llama-compat run NAME      Or a file:  llama-compat run PATH")


@app.command()
def schema() -> None:
    """Print the JSON Schema of templates, for editors."""
    from llama_compat.distribution import schema_path

    typer.echo(schema_path().read_text("utf-8"), nl=False)


@app.command()
def pull(
    model: Annotated[
        str,
        typer.Argument(
            help="'starter', 'starter.gguf', hf:ORG/NAME, hf:ORG/NAME:FILE.gguf or ollama:NAME.",
            autocompletion=completion.pulled_models,
        ),
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how large it is, and whether and how it would run."),
    ] = False,
) -> None:
    """Bring a model onto this machine, and say first what it is and whether it fits."""
    from providers.base import ProviderStartError
    from providers.local.models import store

    if dry_run:
        pulling.foretell(model)
        return
    try:
        folder = store.folder_of(model)
    except ProviderStartError:
        pulling.pull(model)
    else:
        typer.echo(f"{model} is there already, in {folder}")
        pulling.say_what_next(model)


@app.command()
def chat(
    base_url: Annotated[
        str, typer.Option(help="The server's OpenAI base URL.")
    ] = "http://localhost:8321/v1",
    model: Annotated[
        str | None,
        typer.Option(
            help="Whom to talk to; by default the server's first model.",
            autocompletion=completion.served_models,
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="The server's key, if it wants one.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="0 for the likeliest words, more for others.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="How long an answer may be.")
    ] = None,
) -> None:
    """Talk to a running server."""
    from routing.cli.chat.conversation import ChatError, Conversation
    from routing.cli.chat.session import converse

    try:
        conversation = Conversation(
            base_url,
            model=model,
            system=system,
            api_key=api_key,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        converse(conversation)
    except ChatError as error:
        _fail(error)


@app.command()
def status(
    url: Annotated[str, typer.Option(help="Where the server is.")] = "http://localhost:8321",
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every second.")] = False,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="The server's key, if it wants one.")
    ] = None,
) -> None:
    """Show the targets of a running server: what is in flight, what fails, what cools."""
    from routing.cli import status as status_of

    try:
        with closing(status_of.Server(url, api_key)) as server:
            if not watch:
                _print(status_of.shown(server.health(), time.time()))
                return
            with suppress(KeyboardInterrupt):
                status_of.watch(server)
    except status_of.StatusError as error:
        _fail(error)


def _watched(template: str) -> WatchedFile:
    """The template's file as it is before it is read, so that no change of it is missed."""
    from llama_compat.distribution import template_path
    from routing.process.watched_file import WatchedFile

    return WatchedFile(template_path(template))


# check -------------------------------------------------------------------------------------------


def _show(template: str, distribution: Distribution) -> None:
    leads_to = {
        model.id: list(dict.fromkeys(each.provider for each in distribution.targets_of(model)))
        for model in distribution.models
    }
    providers = _table("Provider", "Type", "Models")
    for provider in distribution.providers:
        listed = sum(provider.id in leads_to[model.id] for model in distribution.models)
        offers = [str(listed)] * bool(listed) + ["all it has"] * provider.discovers_models
        providers.add_row(provider.id, provider.type, " + ".join(offers) or "none")
    _print(providers)
    if distribution.models:
        models = _table("Model", "Provider", "Context", "Aliases")
        for model in distribution.models:
            context = "" if model.context_length is None else str(model.context_length)
            places = ", ".join(leads_to[model.id])
            models.add_row(model.id, places, context, ", ".join(model.aliases))
        _print(models)
    _warn(distribution)
    _print(f"{template} is fine. Serve it:  llama-compat run {template}")


def _warn(distribution: Distribution) -> None:
    """Say what a template can be served in spite of, for now."""
    from datetime import date

    from llama_compat.catalog import Catalog
    from llama_compat.catalog.warnings import warnings_of

    for warning in warnings_of(distribution, Catalog.of(distribution), date.today()):
        _print(f"Warning: {warning}.")


def _check_live(distribution: Distribution) -> None:
    from rich.text import Text

    from routing.cli.machine.live import ask_all

    results = ask_all(distribution.providers)
    table = _table("Provider", "Answers", "Models", "What it said")
    for provider in distribution.providers:
        result = results.get(provider.id)
        if result is None:
            table.add_row(provider.id, Text("local", style="dim"))
        elif isinstance(result, Exception):
            said = str(result).removeprefix(f"Provider '{provider.id}': ")
            table.add_row(provider.id, Text("no", style="red"), "", Text(said))
        else:
            table.add_row(provider.id, Text("yes", style="green"), str(len(result)))
    _print(table)
    if any(isinstance(result, Exception) for result in results.values()):
        raise typer.Exit(1)
