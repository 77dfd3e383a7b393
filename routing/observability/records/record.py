"""What is recorded of a request, and the tables that hold it."""

from __future__ import annotations

from msgspec import Struct

from routing.storage.once import table_of_writers
from routing.storage.storage import Migrations


class Record(Struct, gc=False):
    """One request: the columns of the table, in their order.

    Attributes:
        time: when it came in, in seconds since 1970.
        request_id: its `x-request-id`.
        key: the id of the key that it came with; never the key.
        api: the client API.
        operation: which call of it.
        route: the configured model that it went to; empty where there is none.
        model: what the client asked for.
        served: what the provider calls the model that answered.
        provider, target: who answered, or failed last; empty where nobody was asked. The provider
            is `llama-compat-cache` where the reply was in the cache, or came to another as well.
        attempts: how many targets it was sent to.
        status: HTTP status; 499 where the client left before there was one.
        error: the class of what went wrong; empty where nothing did.
        message: what was said of it.
        stream: 1 if the client asked for a stream.
        cancelled: 1 if the client left, or the server stopped, before the end.
        finish_reason: why the reply ended, in the words of the client's API.
        input_tokens, output_tokens: all of them; None where nobody counted.
        cached_tokens, cache_write_tokens: the part of the input that was read from a cache and
            written to one.
        reasoning_tokens: the part of the output that was reasoning.
        estimated: 1 if the tokens are not counted but estimated.
        first_content: seconds until a stream's first content.
        duration: seconds until the end.
        overhead: seconds of the wait for the first byte that were spent here, with no target at
            work on it; None where no target answered.
        cost: in billionths of a dollar; None where the price is not known.
        guardrails: what the template's guardrails found: `NAME:VERDICT` of each, a blank between
            two; the verdicts are `block`, `redact`, `monitor` and `error`.
        trail: what was tried, where that were several targets: JSON, see
            `routing.observability.records.trail`.
        searches: what is paid for by the search: those of the web by the vendor, and of rerank;
            None where there was nothing of that.
        tool_calls: calls of tools that the server ran, searches of its own among them.
    """

    time: float
    request_id: str
    key: str
    api: str
    operation: str
    route: str = ""
    model: str = ""
    served: str = ""
    provider: str = ""
    target: str = ""
    attempts: int = 0
    status: int = 0
    error: str = ""
    message: str = ""
    stream: int = 0
    cancelled: int = 0
    finish_reason: str = ""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: int = 0
    first_content: float | None = None
    duration: float = 0.0
    overhead: float | None = None
    cost: int | None = None
    guardrails: str = ""
    trail: str = ""
    searches: int | None = None
    tool_calls: int = 0


COLUMNS = Record.__struct_fields__

SUMS = (
    "requests",
    "errors",
    "cancelled",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "estimated",
    "cost",
    "unpriced",
    "milliseconds",
    "searches",
    "tool_calls",
)
"""What is added up a day. `unpriced` are the requests with tokens whose price is not known."""

_FIRST_SUMS = SUMS[: SUMS.index("searches")]
"""Those that there were from the beginning."""

ROLLUP_KEYS = ("day", "key", "model", "provider")
"""What the sums of a day are by; `day` counts from 1970-01-01 in UTC."""

HOURLY_KEYS = ("hour", *ROLLUP_KEYS[1:])
"""What the sums of an hour are by; `hour` counts from 1970-01-01 in UTC."""


def _in_partitions(table: str, *indexes: tuple[str, str]) -> str:
    """The statement that has PostgreSQL keep a table in partitions by day, which are dropped whole;
    what is in it becomes one partition (`routing.observability.records.partitions`)."""
    whole = f"{table}_whole"
    renamed = " ".join(
        f"ALTER INDEX {name} RENAME TO {whole}_{column};" for name, column in indexes
    )
    indexed = " ".join(f"CREATE INDEX {name} ON {table} ({column});" for name, column in indexes)
    return (
        "{only_postgres}DO $$ DECLARE next BIGINT; ends BIGINT; BEGIN"
        f" ALTER TABLE {table} RENAME TO {whole}; {renamed}"
        f" ALTER TABLE {whole} ALTER COLUMN id DROP IDENTITY;"
        f" SELECT COALESCE(MAX(id), 0) + 1, FLOOR(GREATEST(COALESCE(MAX(time), 0),"
        f" EXTRACT(EPOCH FROM NOW())) / 86400) + 1 INTO next, ends FROM {whole};"
        f" CREATE SEQUENCE {table}_ids; PERFORM setval('{table}_ids', next, false);"
        f" CREATE TABLE {table} (LIKE {whole}) PARTITION BY RANGE (time);"
        f" ALTER TABLE {table} ALTER COLUMN id SET DEFAULT nextval('{table}_ids'); {indexed}"
        f" CREATE INDEX {table}_by_id ON {table} (id);"
        f" CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT;"
        f" IF next = 1 THEN DROP TABLE {whole}; ELSE"
        f" EXECUTE format('ALTER TABLE {table} ATTACH PARTITION {whole} FOR VALUES FROM (MINVALUE)"
        f" TO (%s)', ends * 86400);"
        f" EXECUTE format('ALTER TABLE {whole} RENAME TO {table}_until_%s', ends);"
        " END IF; END $$"
    )


SUMS_OF_RECORDS = {
    **{each: f"COALESCE(SUM({each}), 0)" for each in SUMS},
    "requests": "COUNT(*)",
    "errors": "SUM(CASE WHEN error <> '' THEN 1 ELSE 0 END)",
    "unpriced": "SUM(CASE WHEN cost IS NULL AND input_tokens IS NOT NULL THEN 1 ELSE 0 END)",
    "milliseconds": "CAST(ROUND(SUM(duration) * 1000) AS BIGINT)",
    "tool_calls": "SUM(tool_calls)",
}
"""`SUMS` in their order, each with its SQL of a group of records."""

# PostgreSQL rounds where it casts, SQLite cuts off: half an hour less is the same to both.
HOUR_OF_RECORD = "CAST(ROUND((time - 1800) / 3600) AS BIGINT)"

_ROLLUPS = ("rollups", "hourly_rollups")

MIGRATIONS = Migrations(
    "records",
    [
        (
            "CREATE TABLE records (id {identity}, time DOUBLE PRECISION NOT NULL,"
            " request_id TEXT NOT NULL, key TEXT NOT NULL, api TEXT NOT NULL,"
            " operation TEXT NOT NULL, route TEXT NOT NULL, model TEXT NOT NULL,"
            " served TEXT NOT NULL, provider TEXT NOT NULL, target TEXT NOT NULL,"
            " attempts BIGINT NOT NULL, status BIGINT NOT NULL, error TEXT NOT NULL,"
            " message TEXT NOT NULL, stream BIGINT NOT NULL, cancelled BIGINT NOT NULL,"
            " finish_reason TEXT NOT NULL, input_tokens BIGINT, cached_tokens BIGINT,"
            " cache_write_tokens BIGINT, output_tokens BIGINT, reasoning_tokens BIGINT,"
            " estimated BIGINT NOT NULL, first_content DOUBLE PRECISION,"
            " duration DOUBLE PRECISION NOT NULL, overhead DOUBLE PRECISION, cost BIGINT)",
            "CREATE INDEX records_by_time ON records (time)",
            "CREATE TABLE rollups (day BIGINT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,"
            " provider TEXT NOT NULL, "
            + ", ".join(f"{each} BIGINT NOT NULL" for each in _FIRST_SUMS)
            + ", PRIMARY KEY (day, key, model, provider))",
            "CREATE TABLE bodies (id {identity}, time DOUBLE PRECISION NOT NULL,"
            " request_id TEXT NOT NULL, request {blob} NOT NULL, reply {blob} NOT NULL)",
            "CREATE INDEX bodies_by_time ON bodies (time)",
            "CREATE INDEX bodies_by_request ON bodies (request_id)",
        ),
        (table_of_writers("record_writers"),),
        (
            "CREATE TABLE hourly_rollups (hour BIGINT NOT NULL, key TEXT NOT NULL,"
            " model TEXT NOT NULL, provider TEXT NOT NULL, "
            + ", ".join(f"{each} BIGINT NOT NULL" for each in _FIRST_SUMS)
            + ", PRIMARY KEY (hour, key, model, provider))",
            f"INSERT INTO hourly_rollups SELECT {HOUR_OF_RECORD}, key, route, provider,"
            f" {', '.join(SUMS_OF_RECORDS[each] for each in _FIRST_SUMS)} FROM records"
            f" GROUP BY {HOUR_OF_RECORD}, key, route, provider",
            _in_partitions("records", ("records_by_time", "time")),
            _in_partitions(
                "bodies", ("bodies_by_time", "time"), ("bodies_by_request", "request_id")
            ),
        ),
        ("ALTER TABLE records ADD COLUMN guardrails TEXT NOT NULL DEFAULT ''",),
        (
            "ALTER TABLE records ADD COLUMN trail TEXT NOT NULL DEFAULT ''",
            "CREATE INDEX records_by_request ON records (request_id)",
        ),
        ("ALTER TABLE bodies ADD COLUMN headers TEXT NOT NULL DEFAULT ''",),
        (
            "ALTER TABLE records ADD COLUMN searches BIGINT",
            *(
                f"ALTER TABLE {table} ADD COLUMN {each} BIGINT NOT NULL DEFAULT 0"
                for table, each in (
                    ("records", "tool_calls"),
                    *((table, each) for table in _ROLLUPS for each in ("searches", "tool_calls")),
                )
            ),
        ),
    ],
)
