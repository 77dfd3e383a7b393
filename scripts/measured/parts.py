"""How fast single parts are: translation, and what is our own work where a library would do."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.measured.results import number, result, times
from scripts.measured.section import Section

CLIENTS = ("chat", "Responses", "Messages", "Gemini", "Ollama")


def sections() -> Iterator[Section]:
    """The questions, in order."""
    yield _translation()
    yield _tool_calls()
    yield _structs()
    yield _spans()
    yield _rows()


def _translation() -> Section:
    found = result("translate")
    ways = {
        tuple(name.split(" -> ")): each["events_per_second"]
        for name, each in found.items()
        if " -> " in name
    }
    vendors = list(dict.fromkeys(vendor for vendor, _ in ways))
    rows = [
        (
            vendor,
            *(
                number(ways[vendor, client]) if (vendor, client) in ways else ""
                for client in CLIENTS
            ),
        )
        for vendor in vendors
    ]
    slowest, fastest = min(ways, key=lambda way: ways[way]), max(ways, key=lambda way: ways[way])
    return Section(
        "How fast are streams translated?",
        f"At {number(ways[slowest])} events a second from {slowest[0]} to {slowest[1]}, the slowest"
        f" way, and {number(ways[fastest])} from {fastest[0]} to {fastest[1]}; relayed, chat comes"
        f" to {number(found['chat relayed']['events_per_second'])}.",
        (("from the vendor's, to the client's", *CLIENTS), rows),
        ["translate"],
        "python -m bench.translate",
        more="Events a second of one core, bytes in and bytes out, with no sockets.",
    )


def _tool_calls() -> Section:
    found = {name: each for name, each in result("tool_calls").items() if name != "machine"}
    size = found.pop("fragment_bytes")
    rows = [
        (name, f"{each['seconds_1_mb']:.2f} s", times(each["ratio"]))
        for name, each in found.items()
    ]
    seconds = [each["seconds_1_mb"] for each in found.values()]
    return Section(
        "How long does it take to put a tool call of 1 MB together?",
        f"{min(seconds):.2f} to {max(seconds):.2f} s, from fragments of {size} bytes.",
        (("how it comes", "1 MB", "of a quarter's"), rows),
        ["tool_calls"],
        "python -m bench.tool_calls",
        more="Four times is linear.",
    )


def _structs() -> Section:
    found = result("structs")
    rows = [
        (what, way, f"{each['microseconds']:.2f} µs", times(each["of_msgspec"]))
        for what in ("read a chunk", "make an event")
        for way, each in found[what].items()
    ]
    pydantic = found["read a chunk"]["pydantic, the same members"]["of_msgspec"]
    return Section(
        "Why msgspec beside pydantic?",
        f"To read a chunk of a stream takes pydantic {times(pydantic)} times as long.",
        (("what", "by", "time", "of msgspec's"), rows),
        ["structs"],
        "python -m bench.structs",
        more="[The decision](../adr/0005-msgspec.md).",
    )


def _spans() -> Section:
    found = result("otlp")["ways"]
    rows = [
        (way, number(each["cpu_us_a_request"]), times(each["of_the_sdk"]))
        for way, each in found.items()
    ]
    return Section(
        "Why an OTLP sender of our own?",
        f"A request's spans take {times(found['own']['of_the_sdk'])} of the processor time that"
        " OpenTelemetry's SDK takes.",
        (("way", "µs of CPU a request", "of the SDK's"), rows),
        ["otlp"],
        "python -m bench.otlp",
        more="[The decision](../adr/0003-otlp-sender.md).",
    )


def _rows() -> Section:
    found = result("rows")["ways"]
    rows = [
        (
            way,
            number(each["cpu_us_a_record"]),
            times(each["of_our_own"]),
            f"{each['import_ms']:.0f} ms",
        )
        for way, each in found.items()
    ]
    return Section(
        "Why no ORM?",
        "A record is written in"
        f" {1 / found['sqlalchemy orm']['of_our_own']:.2f} of the processor time that SQLAlchemy's"
        f" ORM takes, and {1 / found['sqlalchemy core']['of_our_own']:.2f} of what its core takes.",
        (("way", "µs of CPU a record", "of our own", "import"), rows),
        ["rows"],
        "python -m bench.rows",
        more="[The decision](../adr/0006-no-orm.md).",
    )
