"""Where requests go, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.measured.results import number, result, times
from scripts.measured.section import Section


def sections() -> Iterator[Section]:
    """The questions, in order."""
    yield _placement()
    yield _told()


def _placement() -> Section:
    found = result("placement")
    rows = [
        (
            workload,
            replicas,
            balance,
            f"{figures['ttft_p50_ms']:,.0f} ms",
            f"{figures['ttft_p90_ms']:,.0f} ms",
            number(figures["tokens_per_s"]),
            number(figures["tokens_per_s_of_a_stream"]),
            f"{figures['hit_rate']:.0%}",
            times(figures["imbalance"]),
        )
        for workload, sizes in found["workloads"].items()
        for replicas, measured in sizes.items()
        for balance, figures in _of_balances(measured)
    ]
    engine = found["engine"]
    return Section(
        "What does it bring to send a prompt where it was before?",
        "On system prompts that many share, and that no engine can hold all of, the first token"
        f" comes {found['better']:.0f} times sooner (p90) with `balance: prefix` than with"
        f" `least_busy`. Of what was tried nothing takes more than {found['worst']:.2f} times as"
        " long as with that.",
        (
            (
                "requests",
                "replicas",
                "`balance`",
                "TTFT p50",
                "p90",
                "tokens/s",
                "of a stream",
                "cached",
                "busiest of mean",
            ),
            rows,
        ),
        ["placement"],
        "python -m bench.placement",
        more="The engines are simulated, on virtual time: the machine and what else it does make no"
        f" difference. Each computes {engine['prefill_tokens_per_second']:,.0f} tokens of a prompt"
        f" in a second, a step takes {engine['step_seconds'] * 1000:g} ms and"
        f" {engine['step_seconds_per_sequence'] * 1000:g} ms for each sequence, and its cache holds"
        f" {engine['kv_blocks'] * engine['block_tokens']:,} tokens. The policies are those of the"
        " server, and read what a client would send.",
    )


def _told() -> Section:
    found = result("told")
    rows = [
        (
            workload,
            gateways,
            way,
            f"{figures['ttft_p50_ms']:,.0f} ms",
            f"{figures['ttft_p90_ms']:,.0f} ms",
            f"{figures['hit_rate']:.0%}",
        )
        for workload, sizes in found["workloads by gateways"].items()
        for gateways, ways in sizes.items()
        for way, figures in ways.items()
        if not way.startswith("the same")
    ]
    return Section(
        "What does it bring that replicas tell what their caches hold?",
        "One gateway guesses nearly as well from what it has sent. Several that share no store know"
        " only what each of them sent; told by the replicas they do as well as one.",
        (("requests", "gateways", "a request goes by", "TTFT p50", "p90", "cached"), rows),
        ["told"],
        "python -m bench.told",
        more=f"{found['replicas']} of the same engines, on virtual time. The requests are spread"
        " evenly over the gateways.",
    )


def _of_balances(measured: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    for name, figures in measured.items():
        if "hit_rate" in figures:
            yield name, figures
