"""Models that are brought onto this machine, and what is seen of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from routing.cli.terminal import console, fail, harmless, print_

if TYPE_CHECKING:
    from rich.progress import TaskID

    from llama_compat.distribution import Distribution
    from providers.local.models.forecast import ModelForecast


def pull(model: str) -> None:
    """Bring a model onto this machine, if it is not there; or say why not, and end."""
    from providers.base import ProviderStartError
    from providers.local.models import store

    # SIGTERM ends a pull as Ctrl-C does: downloads stop, what can't be used is deleted.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with progress_bars() as progress:
            folder = store.pull(model, progress, show_forecast)
        typer.echo(f"{model} is ready in {folder}")
        say_what_next(model)
    except ProviderStartError as error:
        fail(error)
    except KeyboardInterrupt:
        fail(f"Stopped. To go on: llama-compat pull {model}", 130)
    finally:
        signal.signal(signal.SIGTERM, before)


def say_what_next(model: str) -> None:
    """Say how a model that is there is served, and measured."""
    print_(f"Serve it:  llama-compat run {model}      Measure it:  llama-compat bench {model}")


def foretell(model: str) -> None:
    """Say what is known of a model, of which only its settings are fetched; or why not, and end."""
    from providers.base import ProviderStartError
    from providers.local.models import store

    try:
        with progress_bars() as progress:
            forecast = store.foretell(model, progress)
    except ProviderStartError as error:
        fail(error)
    show_forecast(forecast)


def show_forecast(forecast: ModelForecast) -> None:
    """Say what a model will be on this machine, above the bars of a pull where there are some."""
    facts = [f"{size_of(forecast.size)} to fetch"]
    if forecast.parameters is not None:
        facts.append(f"{count_of(forecast.parameters)} parameters")
    if forecast.context is not None:
        facts.append(f"a context of {forecast.context:,} tokens")
    # rich gives what is printed to its bars, which go on below; click's echo passes it by.
    print(harmless(f"{forecast.name}: {', '.join(facts)}"))
    print(harmless(f"  {forecast.engine or 'no engine here'}: {forecast.how}"))
    for need in forecast.needs:
        free = "" if need.free is None else f", {size_of(need.free)} are free"
        word = {None: "takes", True: "fits", False: "DOES NOT FIT"}[need.fits]
        numbers = "" if need.numbers is None else f" in {need.numbers}"
        usual = " (the default)" if need.usual and len(forecast.needs) > 1 else ""
        print(f"  {word} on {need.device}{numbers}{usual}: {size_of(need.bytes)} of memory{free}")


def size_of(count: int) -> str:
    """Bytes, as people say them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def count_of(count: int) -> str:
    """A number of parameters, as people say it."""
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.3g}M"


def pull_missing(distribution: Distribution, *, asked_to: bool) -> None:
    """Pull what a distribution's models need and is not here: if `asked_to`, or if whoever sits at
    the terminal wants it."""
    from providers.local.models import store

    for model in wanted_models(distribution):
        if not store.is_missing(model):
            continue
        if asked_to:
            pull(model)
        elif sys.stdin.isatty() and sys.stdout.isatty():
            if not typer.confirm(f"The model '{model}' is not on this machine. Pull it?", True):
                fail(f"Then there is nothing to serve it from. Later: llama-compat pull {model}")
            pull(model)


def wanted_models(distribution: Distribution) -> list[str]:
    """The models that engines of this process are to run, and their adapters, as their providers
    name them."""
    types = {provider.id: provider.type for provider in distribution.providers}
    wanted = [
        target.model if target.adapter is None else target.adapter.source
        for model in distribution.models
        for target in distribution.targets_of(model)
        if types[target.provider].startswith("local::") and types[target.provider] != ECHO
    ]
    return list(dict.fromkeys(wanted))


ECHO = "local::echo"
"""It runs no model."""


@contextmanager
def progress_bars() -> Iterator[Callable[..., None]]:
    """Shows each step of a pull as a bar on a terminal, and as a line elsewhere."""
    shown = console()
    if not shown.is_terminal:
        seen: set[str] = set()

        def lines(step: str, done: int = 0, total: int | None = None) -> None:
            if step not in seen:
                seen.add(step)
                size = "" if total is None else f" ({total / 1e6:.0f} MB)"
                shown.print(harmless(f"{step}{size} ..."), soft_wrap=True)

        yield lines
        return

    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<23}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[size]:>13}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=shown) as bars:
        tasks: dict[str, TaskID] = {}

        def bar(step: str, done: int = 0, total: int | None = None) -> None:
            if step not in tasks:
                for task in bars.tasks:
                    bars.update(task.id, completed=task.total or 1, total=task.total or 1)
                tasks[step] = bars.add_task(step, total=total, size="")
            # What is on disk may be more than what is downloaded, for a moment.
            done = done if total is None else min(done, total)
            size = "" if total is None else f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"
            bars.update(tasks[step], completed=done, total=total, size=size)

        yield bar
