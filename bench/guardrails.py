"""What guardrails cost: streams and whole replies that are looked through for patterns, beside the
same gateway that relays them as they are.

    python -m bench.guardrails [--rounds 5] [--seconds 3]

`bench.load.side_by_side` says how. `input` looks through requests, whose replies are relayed;
`output` through replies, on their way. Writes `bench/results/guardrails.json`.
"""

from __future__ import annotations

from typing import Any

from bench.load import peers
from bench.load.side_by_side import options_of, side_by_side
from bench.load.stage import generate
from bench.machine import write_results

WANTED = 0.8
"""Of the events and the requests a second of the gateway without, at least."""

PATTERNS = ["api_keys", "cards", "emails", "ibans", "phone_numbers"]
"""All that is looked for by name."""


def looks_through(scan: str) -> dict[str, Any]:
    """What the template of a gateway has that looks through `scan`."""
    return {"guardrails": [{"name": scan, "scan": scan, "patterns": PATTERNS}]}


GATEWAYS: dict[str, dict[str, Any]] = {
    "relay": {},
    "input": looks_through("input"),
    "output": looks_through("output"),
}


def measure(started: peers.Started, cores: set[int], seconds: float) -> dict[str, float]:
    """One round of one gateway."""
    whole = generate(started, cores, "--connections", 32, "--seconds", seconds)
    streams = generate(started, cores, "--connections", 32, "--seconds", seconds, "--stream")
    return {
        "requests_per_s": whole["requests_per_s"],
        "events_per_s": streams["events_per_s"],
        "errors": sum(each["errors"] + each["broken"] for each in (whole, streams)),
    }


def main() -> None:
    """Measure, print, and write the results."""
    options = options_of(__doc__ or "").parse_args()
    measured = side_by_side(GATEWAYS, measure, options.rounds, options.seconds)
    for name, figures in measured["ratios"].items():
        print(name, figures, "wanted", WANTED)
    write_results("guardrails", {"wanted": WANTED, **measured})


if __name__ == "__main__":
    main()
