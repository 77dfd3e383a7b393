"""How fast the gateway is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.measured.results import number, result, times
from scripts.measured.section import Section

OURS = "llama_compat"


def sections() -> Iterator[Section]:
    """The questions, in order."""
    yield _relays()
    yield _paired()
    yield _workers()
    yield _connections()
    yield _operations()
    yield _policies()
    yield _chaos()
    yield _soak()
    yield _startup()


def peers() -> dict[str, dict[str, float]]:
    """The medians of every gateway, of the one that answered most requests first."""
    medians: dict[str, dict[str, float]] = result("gateway")["medians"]
    order = sorted(medians, key=lambda name: -medians[name]["requests_per_s"])
    return {name: medians[name] for name in order}


def _relays() -> Section:
    medians, ratios = peers(), result("gateway")["ratios"]

    def row(name: str, got: dict[str, float]) -> tuple[str, ...]:
        streams = bool(got["events_per_s"])
        of = times(ratios[name]["requests_per_s"]) if name in ratios else ""
        events = ratios.get(name, {}).get("events_per_s")
        return (
            f"**{name}**" if name == OURS else name,
            number(got["requests_per_s"]),
            of,
            number(got["cpu_us_a_request"]) if name != "no gateway" else "",
            f"{got['p50_ms_one_connection']:.2f} ms",
            number(got["events_per_s"]) if streams else "none",
            times(events) if events else "",
            f"{got['first_event_p99_ms']:,.0f} ms" if streams else "",
            f"{got['peak_mib']:.0f} MiB" if name != "no gateway" else "",
        )

    failing = " and ".join(name for name, got in medians.items() if got["errors"])

    def beside(name: str) -> str:
        return times(ratios[name]["requests_per_s"])

    head = (
        "on one core",
        "requests/s",
        "ours, times theirs",
        "µs of CPU a request",
        "p50, 1 connection",
        "events/s",
        "ours, times theirs",
        "first event, p99",
        "memory",
    )
    return Section(
        "How many requests does one worker relay?",
        f"{number(medians[OURS]['requests_per_s'])} a second, and"
        f" {number(medians[OURS]['events_per_s'])} events of streams: of requests"
        f" {beside('bare relay')} times a bare relay's, {beside('TensorZero')} times TensorZero's,"
        f" {beside('LiteLLM')} times LiteLLM's and {beside('vllm-router')} times vllm-router's.",
        (head, [row(name, got) for name, got in medians.items()]),
        ["gateway"],
        "python -m bench.gateway --peers --rounds 2 --seconds 2",
        (
            "gateways",
            "Requests and events a second of every gateway, each of which has one core",
        ),
        "The bare relay is thirty lines of ASGI and aiohttp. nginx, vllm-router and smg pass on a"
        " reply unread; here it is read, repaired and redacted. The load was"
        f" {result('gateway')['what']}. Errors among the answers had {failing}.",
    )


def _paired() -> Section:
    found = result("paired")
    ratios = found["of the earlier one"]
    plain = ratios["none"]["requests_per_s"]
    wanted = found["wanted of the earlier one"]["requests_per_s"]
    called = {"none": "with nothing else", "all": "records, metrics, traces", "limits": "limits"}
    rows = [
        (
            called[kind],
            times(each["requests_per_s"]),
            times(each["events_per_s"]),
            times(each["processor_us_per_request"]),
            times(each["processor_us_per_event"]),
        )
        for kind, each in ratios.items()
    ]
    head = ("of the earlier tree", "requests/s", "events/s", "CPU a request", "CPU an event")
    return Section(
        "Has it become slower?",
        f"{'Yes' if plain < wanted else 'No'}: a worker of this date did {times(plain)} times the"
        f" requests/s of an earlier tree, and {times(ratios['none']['events_per_s'])} times the"
        " events, in one run of both.",
        (head, rows),
        ["paired"],
        "python -m bench.paired --before ../before/.venv/bin/llama-compat",
    )


def _workers() -> Section:
    found = result("workers")
    scaling, memory = found["scaling"], found["memory"]
    gained = times(scaling["two workers, times one's requests_per_s"])
    rows = [
        (
            f"{each} worker{'s' if each != '1' else ''}",
            number(scaling[each]["requests_per_s"]),
            number(scaling[each]["cpu_us"]),
            f"{scaling[each]['p99_ms']:.0f} ms",
        )
        for each in ("1", "2")
    ]
    return Section(
        "What do more workers do?",
        f"Two did {gained} times the requests/s of one, while the upstream and the load ran on the"
        " same two cores.",
        (("", "requests/s", "µs of CPU a request", "p99"), rows),
        ["workers"],
        "python -m bench.workers",
        more=f"One of four workers has {memory['one of 4 workers']['proportional_mib']:.0f} MiB of"
        f" its own, a single server {memory['alone']['proportional_mib']:.0f}.",
    )


def _connections() -> Section:
    found = result("connections")
    called = {
        "idle": "idle",
        "streaming": "takes a stream",
        "stalled": "does not read its stream",
    }
    rows = [
        (called[kind], f"{found[kind]['clients']:,}", f"{found[kind]['kib_each']:.1f} KiB")
        for kind in called
    ]
    return Section(
        "What memory does a client take?",
        f"{found['idle']['kib_each']:.0f} KiB while it is idle, and"
        f" {found['stalled']['kib_each']:.0f} where it reads nothing of a stream of"
        f" {found['stalled_stream_mb']:.0f} MB.",
        (("a client that is", "of them", "memory of each"), rows),
        ["connections"],
        "python -m bench.connections",
    )


def _operations() -> Section:
    found, counted = result("operations"), result("instructions")
    ratios = found["of the gateway without any"]
    instructions = counted["of the gateway without any, and of a single target"]
    called = {
        "records": "records",
        "metrics": "metrics",
        "traces": "traces",
        "all": "these three",
        "limits": "a key with limits, in memory",
    }
    rows = [
        (
            called[kind],
            times(ratios[kind]["requests_per_s"]),
            times(ratios[kind]["events_per_s"]),
            times(ratios[kind]["processor_us_per_request"]),
        )
        for kind in called
    ]
    wanted = found["wanted with all"]
    return Section(
        "What do records, metrics, traces and limits cost?",
        f"With all of the first three a worker does {times(ratios['all']['requests_per_s'])} times"
        f" the requests/s that it does with none, and {times(ratios['all']['events_per_s'])} times"
        " the events.",
        (("of the gateway with none", "requests/s", "events/s", "CPU a request"), rows),
        ["operations", "instructions"],
        "python -m bench.operations",
        more=f"Wanted were {times(wanted['requests_per_s'])} and {times(wanted['events_per_s'])}."
        " In instructions of the processor, which others on the machine hardly change"
        f" (`python -m bench.instructions`), a request took {times(instructions['all'])} times as"
        f" many with all three, and {times(instructions['limits'])} with limits; wanted were"
        f" {times(counted['wanted at most']['all'])}.",
    )


def _policies() -> Section:
    found = result("policies")
    key = "processor_us, of the single target's"
    several = {name: each[key] for name, each in found["models"].items() if key in each}
    rows = [
        (f"`{name}`", number(found["models"][name]["processor_us"]), times(ratio))
        for name, ratio in sorted(several.items(), key=lambda each: each[1])
    ]
    least, most = min(several.values()), max(several.values())
    return Section(
        "What does a choice between targets cost?",
        f"Between three healthy ones {times(least)} to {times(most)} times the processor time of a"
        " request that has one target.",
        (("balance", "µs of CPU a request", "of a single target's"), rows),
        ["policies"],
        "python -m bench.policies",
        more=f"Wanted was {times(found['wanted'][key])}.",
    )


def _chaos() -> Section:
    found = result("chaos-500")["gateways"]
    called = {"healthy": "none", "killed": "killed", "frozen": "frozen"}

    def row(name: str, kind: str, got: dict[str, Any]) -> tuple[str, ...]:
        return (
            f"**{name}**" if name == OURS else name,
            called[kind],
            f"{got['answered']:.1%}",
            f"{got['p50_ms']:,.0f} ms",
            f"{got['p99_ms']:,.0f} ms",
            times(got["p99_times_healthy"]),
        )

    rows = [row(name, kind, got) for name, kinds in found.items() for kind, got in kinds.items()]
    frozen = {name: times(kinds["frozen"]["p99_times_healthy"]) for name, kinds in found.items()}
    others = ", ".join(f"{ratio} for {name}" for name, ratio in frozen.items() if name != OURS)
    return Section(
        "What do clients notice when a vendor fails?",
        f"When one of three vendors froze, the p99 until the first content was {frozen[OURS]} times"
        f" the healthy one; {others}.",
        (("gateway", "what failed", "answered", "p50", "p99", "p99, of the healthy one"), rows),
        ["chaos-500"],
        "python -m bench.chaos",
        more=f"It was {result('chaos-500')['what']}. More ways to fail are in"
        " `bench/results/chaos.json`, of shorter runs.",
    )


def _soak() -> Section:
    found = result("soak")
    tasks, files = found["tasks"], found["descriptors"]
    rows = [
        ("memory, last quarter of the second", times(found["memory_last_quarter_of_second"])),
        ("memory at the end", f"{found['memory_mib'][-1]:.0f} MiB"),
        ("tasks before and after", f"{tasks['before']}, {tasks['after']}"),
        ("file descriptors first and last", f"{files['first']}, {files['last']}"),
    ]
    return Section(
        "Does it grow?",
        f"After {found['requests']:,} requests and {found['aborted_streams']:,} streams broken off"
        f" its memory was {found['memory_last_quarter_of_second']:.3f} times that of the second"
        " quarter.",
        (("what", "found"), rows),
        ["soak"],
        "python -m bench.soak",
    )


def _startup() -> Section:
    found = result("startup")
    rows = [
        (what, f"{_median(found[key]):.2f} s")
        for what, key in (
            ("the imports alone", "imports_s"),
            ("`run echo`, to the first healthy answer", "echo_s"),
            ("`run starter` on the CPU, the same", "starter_s"),
        )
    ]
    return Section(
        "How long does a start take?",
        f"{_median(found['echo_s']):.2f} s without a model in the process, which is"
        f" {times(found['echo_start_of_imports'])} times the imports;"
        f" {_median(found['starter_s']):.1f} s with the starter.",
        (("from the shell", "median"), rows),
        ["startup"],
        "python -m bench.startup --starter",
        more=f"Without a model it has {found['echo_resident_mib']:.0f} MiB then.",
    )


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
