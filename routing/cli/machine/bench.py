"""`bench`: how fast a model answers on this machine, in a minute.

It is asked as clients ask it, through the server's API: of one that runs already, or of one that is
started for that, with the model of a template or one that lies on this machine. One client at a
time, 8, and 32 send one request after the other, each with a text of its own, so that nothing is in
a cache; when their time is over they hang up.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routing.cli.machine.measuring import Served, metrics
from routing.cli.terminal import fail, print_, table

if TYPE_CHECKING:
    import openai

CLIENTS = (1, 8, 32)
PROMPT_WORDS = 96
"""Of a prompt, which are some 120 tokens."""

REPLY_TOKENS = 64
SECONDS = 15.0
"""For each number of clients, so that all of it is over in a minute."""

LOADING_SECONDS = 600.0
STOPPING_SECONDS = 20.0
FIRST_SECONDS = 120.0
"""For the first answer of a model, which may have to be loaded for it."""

WORDS = (
    *("river", "stone", "window", "garden", "letter", "winter", "engine", "paper", "music"),
    *("shadow", "bridge", "number", "kitchen", "forest", "minute", "captain", "silver"),
    *("market", "dinner", "pocket", "summer", "yellow", "doctor", "island"),
)

_LOCAL = """\
version: 1
server: {{host: 127.0.0.1, port: {port}}}
providers: [{{id: engine, type: '{provider}'}}]
models: [{{id: model, provider: engine, provider_model: {model}}}]
"""

Figures = Mapping[str, float]


class BenchError(Exception):
    """It can't be measured; the message is a sentence."""


@dataclass(frozen=True)
class AskedModel:
    """How a model is asked.

    Attributes:
        client: of the server's API.
        model: the model's id there.
        chats: whether by chat completions; else by completions, as it has no chat template.
        options: members of each request beside those.
    """

    client: openai.AsyncOpenAI
    model: str
    chats: bool
    options: Mapping[str, Any]

    def stream(self, prompt: str, tokens: int) -> Any:
        """A streamed request for so many tokens."""
        asked: dict[str, Any] = {"model": self.model, "max_tokens": tokens, "stream": True}
        extra = {**self.options, "stream_options": {"include_usage": True}}
        if self.chats:
            messages: Any = [{"role": "user", "content": prompt}]
            made = self.client.chat.completions.with_streaming_response
            return made.create(messages=messages, **asked, extra_body=extra)
        completions = self.client.completions.with_streaming_response
        return completions.create(prompt=prompt, **asked, extra_body=extra)


def bench(
    model: Annotated[
        str,
        typer.Argument(
            help="'starter', hf:ORG/NAME, ollama:NAME or a path; with --template or --url its id"
            " there."
        ),
    ],
    template: Annotated[
        str | None, typer.Option(metavar="TEMPLATE", help="Start this one, and ask its model.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask a server that runs: its OpenAI base URL.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="The server's key, if it wants one.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="How long each number of clients asks.")
    ] = SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of a table.")] = False,
) -> None:
    """Measure a model on this machine: tokens/s for 1, 8 and 32 clients, and the time until the
    first token."""
    if template is not None and url is not None:
        fail("Either a template is started, or a server is asked that runs: leave one of both out.")
    try:
        with ExitStack() as stack:
            if url is None:
                url, asked = stack.enter_context(_started(model, template, quiet=as_json))
            else:
                asked = model
            found = asyncio.run(_measure(url, asked, api_key, seconds, name=model, quiet=as_json))
    except BenchError as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps({"model": model, **found}, indent=2))
    else:
        _show(model, found)


def _show(model: str, found: Mapping[str, Any]) -> None:
    shown = table("Clients", "Tokens/s", "Each", "First token", "99 % of them", "Between tokens")
    for clients, each in found["clients"].items():
        pace = 1000 / each["median_tpot_ms"] if each["median_tpot_ms"] else 0.0
        shown.add_row(
            clients,
            f"{each['output_throughput']:.1f}",
            f"{pace:.1f}/s",
            f"{each['median_ttft_ms']:.0f} ms",
            f"{each['p99_ttft_ms']:.0f} ms",
            f"{each['median_itl_ms']:.0f} ms",
        )
    print_(shown)
    print_(
        f"{model}: prompts of {found['prompt_tokens']} tokens, replies of up to"
        f" {found['reply_tokens']}. 'Each' is how fast one of them reads; of what has not begun"
        " when the time is over nothing is counted."
    )


# The server ---------------------------------------------------------------------------------------


@contextmanager
def _started(model: str, template: str | None, *, quiet: bool) -> Iterator[tuple[str, str]]:
    """A server that is there for the block: its base URL, and what the model is called there."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        asked = model
        if template is None:
            template, asked = str(Path(folder) / "bench.yaml"), "model"
            settings = {"port": port, "provider": _provider_of(model)}
            Path(template).write_text(
                _LOCAL.format(**settings, model=json.dumps(model)), encoding="utf-8"
            )
        said = Path(folder) / "log"
        if not quiet:
            typer.echo(f"Loading {model} ...")
        run = "from routing.cli import main; main()"
        command = [sys.executable, "-c", run, "run", template, "--port", str(port)]
        command += ["--host", "127.0.0.1"]
        with said.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ}
            )
        try:
            _await_health(port, process, said)
            yield f"http://127.0.0.1:{port}/v1", asked
        finally:
            process.terminate()
            try:
                process.wait(STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _provider_of(model: str) -> str:
    """The engine that runs a model of this machine.

    Raises:
        BenchError: it is not there; the message says how to get it.
    """
    from providers.base import ProviderStartError
    from providers.local.models import store

    try:
        store.resolve_gguf(model)
        return "local::llama_cpp"
    except ProviderStartError:
        pass
    try:
        if Path(model).expanduser().is_dir():
            return "local::torch"
        store.resolve(model)
    except ProviderStartError as error:
        raise BenchError(str(error)) from error
    return "local::torch"


def _await_health(port: int, process: subprocess.Popen[bytes], said: Path) -> None:
    until = time.monotonic() + LOADING_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        time.sleep(0.05)
    lines = said.read_text("utf-8", "replace").strip().splitlines()
    raise BenchError(
        "The server did not start. The last that it said:\n" + "\n".join(lines[-5:] or ["nothing"])
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# The clients --------------------------------------------------------------------------------------


async def _measure(
    url: str, model: str, api_key: str | None, seconds: float, *, name: str, quiet: bool
) -> dict[str, Any]:
    import openai

    client = openai.AsyncOpenAI(
        base_url=url, api_key=api_key or "none", max_retries=0, timeout=LOADING_SECONDS
    )
    async with client:
        try:
            asking, prompt_tokens, a_chunk = await _first(client, model, name)
            found: dict[str, Figures] = {}
            for clients in CLIENTS:
                if not quiet:
                    typer.echo(f"{clients} at a time, for {seconds:g} s ...")
                found[str(clients)] = await _round(asking, clients, seconds, a_chunk)
        except openai.OpenAIError as error:
            raise BenchError(f"The server at {url} did not answer: {error}") from error
    return {"prompt_tokens": prompt_tokens, "reply_tokens": REPLY_TOKENS, "clients": found}


async def _first(
    client: openai.AsyncOpenAI, model: str, name: str
) -> tuple[AskedModel, int, float]:
    """How the model is asked, the tokens of a prompt, and the tokens that an event stands for.

    A model that says less than it may is asked to go on; whom that means nothing is not. It is
    `name` to who runs this.

    Raises:
        BenchError: it does not generate.
    """
    import openai

    refused: Exception | None = None
    for chats, options in (
        (True, {"ignore_eos": True}),
        (False, {"ignore_eos": True}),
        (True, {}),
        (False, {}),
    ):
        asking = AskedModel(client, model, chats, options)
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                events = [each async for each in _events(asking, _prompt("first"), REPLY_TOKENS)]
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            refused = refused or error
            continue
        except TimeoutError:
            raise BenchError(
                f"The model said {REPLY_TOKENS} tokens in no less than {FIRST_SECONDS:g} s: it is"
                " too large for this machine."
            ) from None
        usage: Mapping[str, Any] = next((each["usage"] for each in events if each.get("usage")), {})
        said = sum(map(_says, events))
        if not said:
            raise BenchError(f"The model '{name}' said nothing.")
        return (
            asking,
            int(usage.get("prompt_tokens", 0)),
            int(usage.get("completion_tokens") or said) / said,
        )
    raise BenchError(f"The model '{name}' can't be asked to say anything: {refused}")


async def _round(asking: AskedModel, clients: int, seconds: float, a_chunk: float) -> Figures:
    """So many clients that ask for so long."""
    served: list[Served] = []
    began = time.perf_counter()
    until = began + seconds

    async def ask(number: int) -> None:
        for turn in range(1_000_000):
            one = Served(time.perf_counter(), [])
            served.append(one)
            prompt = _prompt(f"{clients} {number} {turn}")
            async for event in _events(asking, prompt, REPLY_TOKENS):
                if _says(event):
                    one.tokens.append(time.perf_counter())

    asked = [asyncio.create_task(ask(number)) for number in range(clients)]
    done, waiting = await asyncio.wait(asked, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    until = min(until, time.perf_counter())
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for task in done:
        task.result()
    counted = [
        Served(each.sent, _spread([at for at in each.tokens if at <= until], a_chunk))
        for each in served
    ]
    begun = [each for each in counted if each.tokens]
    if not begun:
        raise BenchError(
            f"Of {clients} clients none got a token in {seconds:g} s: give it more with --seconds."
        )
    return {**metrics(begun, until), "requests": len(served), "begun": len(begun)}


def _spread(events: Sequence[float], a_chunk: float) -> list[float]:
    """When tokens came, of which an event may have several."""
    if a_chunk <= 1:
        return list(events)
    count = round(len(events) * a_chunk)
    return [events[min(int(at / a_chunk), len(events) - 1)] for at in range(count)]


async def _events(asking: AskedModel, prompt: str, tokens: int) -> AsyncIterator[dict[str, Any]]:
    async with asking.stream(prompt, tokens) as reply:
        async for line in reply.iter_lines():
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                event = json.loads(data)
                if "error" in event:
                    raise BenchError(f"A reply broke off: {event['error'].get('message')}")
                yield event


def _says(event: Mapping[str, Any]) -> bool:
    """Whether an event of a stream has some of the reply."""
    for choice in event.get("choices") or ():
        said = choice.get("delta") or choice
        if any(said.get(name) for name in ("content", "text", "reasoning", "reasoning_content")):
            return True
    return False


def _prompt(seed: str) -> str:
    """A text that begins as no other does."""
    chosen = random.Random(seed)
    text = " ".join(chosen.choice(WORDS) for _ in range(PROMPT_WORDS))
    return f"{text}: go on with these words"
