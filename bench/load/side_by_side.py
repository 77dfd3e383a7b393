"""Gateways of ours whose templates differ in one thing, beside each other under the same load.

The upstream answers at once. Each gateway has one core, the upstream and the load share another.
All are measured once a round, in turn; every figure is divided by that of the first one in the same
round, so that a noisy minute meets both, and the medians of these count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.load import peers
from bench.load.stage import upstream
from bench.operations import in_rounds, median_ratio

Sections = Mapping[str, Mapping[str, Any]]
"""What each gateway's template has besides the upstream and its one model, by the gateway's name;
the members of `server` go to that."""

Measure = Callable[[peers.Started, set[int], float], dict[str, float]]
"""Measures one gateway under load from these cores for so many seconds; `errors` among it."""


def options_of(description: str) -> argparse.ArgumentParser:
    """The options that all of them have."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    return parser


def gateway(name: str, sections: Mapping[str, Any], url: str, scratch: Path) -> peers.Gateway:
    """One gateway in front of the upstream at `url`."""
    port = peers.free_port()
    more = {**sections}
    document: dict[str, Any] = {
        "version": 1,
        "server": {"port": port, **more.pop("server", {})},
        "providers": [
            {"id": "up", "type": "remote::passthrough", "config": {"base_url": f"{url}/v1"}}
        ],
        "models": [{"id": "model", "provider": "up"}],
        **more,
    }
    template = scratch / f"{name}.yaml"
    template.write_text(yaml.safe_dump(document))
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(template)]
    return peers.Gateway(name, port, command)


@contextmanager
def running_upstream(cores: set[int], scratch: Path) -> Iterator[str]:
    """The upstream on `cores`, while entered: its URL."""
    with upstream(cores, scratch / "upstream.log") as behind:
        yield behind.url.partition("/v1")[0]


def side_by_side(
    sections: Sections, measure: Measure, rounds: int, seconds: float
) -> dict[str, Any]:
    """The ratios of each to the first, how many errors there were, and the figures themselves."""
    cores = sorted(os.sched_getaffinity(0))
    own, others = {cores[0]}, {cores[-1]}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(running_upstream(others, scratch))
        started = {
            name: stack.enter_context(
                peers.running(gateway(name, each, url, scratch), own, scratch / f"{name}.log")
            )
            for name, each in sections.items()
        }
        measured = in_rounds(
            rounds,
            lambda _: {name: measure(each, others, seconds) for name, each in started.items()},
        )
    first, *compared = sections
    ratios = {
        name: {
            figure: median_ratio((each[name][figure], each[first][figure]) for each in measured)
            for figure in measured[0][first]
            if figure != "errors"
        }
        for name in compared
    }
    errors = sum(each["errors"] for one in measured for each in one.values())
    return {"ratios": ratios, "errors": errors, "rounds": measured}
