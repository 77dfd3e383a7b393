"""Counters in PostgreSQL, for gateways that have no Redis.

The same four scripts as in Redis, as functions of the database: what each takes and gives is said
in the Lua files. The tables are not logged: after a crash of the server they are empty, as a Redis
is that has kept nothing, and are told again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from providers.base import ProviderStartError
from routing.access.limits.names import lease_of
from routing.access.limits.shared import SharedCounters
from routing.storage.postgres import SERVER_SETTINGS
from routing.storage.storage import Migrations, StorageError, open_storage

_READ = """
CREATE FUNCTION limit_read(name TEXT, drains DOUBLE PRECISION, now DOUBLE PRECISION)
RETURNS DOUBLE PRECISION LANGUAGE plpgsql AS $body$
DECLARE found limit_counters;
BEGIN
  INSERT INTO limit_counters (counter, at) VALUES (name, now) ON CONFLICT DO NOTHING;
  SELECT * INTO found FROM limit_counters WHERE counter = name FOR UPDATE;
  DELETE FROM limit_leases WHERE counter = name AND until <= now;
  RETURN GREATEST(0, found.used - GREATEST(0, now - found.at) * drains);
END $body$
"""

_RESERVED = """
CREATE FUNCTION limit_reserved(name TEXT) RETURNS DOUBLE PRECISION LANGUAGE sql AS $body$
  SELECT COALESCE(SUM(reserve), 0) FROM limit_leases WHERE counter = name
$body$
"""

_WRITE = """
CREATE FUNCTION limit_write(name TEXT, amount DOUBLE PRECISION, now DOUBLE PRECISION)
RETURNS VOID LANGUAGE sql AS $body$
  UPDATE limit_counters SET used = amount, at = GREATEST(at, now) WHERE counter = name
$body$
"""

_ENDS = """
CREATE FUNCTION limit_ends(name TEXT, period_ends DOUBLE PRECISION)
RETURNS VOID LANGUAGE sql AS $body$
  UPDATE limit_counters SET ends = period_ends WHERE counter = name AND ends <> period_ends
$body$
"""

_NOW = """
CREATE FUNCTION limit_now() RETURNS DOUBLE PRECISION LANGUAGE sql AS $body$
  SELECT EXTRACT(EPOCH FROM clock_timestamp())::double precision
$body$
"""

_EPOCH = """
CREATE FUNCTION limit_epoch(fresh TEXT) RETURNS TEXT LANGUAGE plpgsql AS $body$
DECLARE found TEXT;
BEGIN
  SELECT epoch INTO found FROM limit_epochs;
  IF found IS NULL THEN
    INSERT INTO limit_epochs (epoch) VALUES (fresh) ON CONFLICT DO NOTHING;
    SELECT epoch INTO found FROM limit_epochs;
  END IF;
  RETURN found;
END $body$
"""

_TAKE = """
CREATE FUNCTION limit_take(names TEXT[], given TEXT[]) RETURNS TEXT[] LANGUAGE plpgsql AS $body$
DECLARE
  own TEXT := given[1]; lasts DOUBLE PRECISION := given[2]; now DOUBLE PRECISION;
  places INT := (cardinality(names) - 2) / 2; a INT; name TEXT; room BOOLEAN := true;
  again BOOLEAN := false; was_settled BOOLEAN := false; useds DOUBLE PRECISION[]; reply TEXT[];
  reserve DOUBLE PRECISION; amount DOUBLE PRECISION; cap DOUBLE PRECISION;
BEGIN
  -- Whoever settles it meanwhile waits until it is known whether it was taken.
  INSERT INTO limit_marks VALUES (own, limit_now() + 3600, false) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    SELECT m.is_settled, NOT m.is_settled INTO was_settled, again FROM limit_marks m
      WHERE m.lease = own;
  END IF;
  FOR i IN 1..places LOOP
    a := 3 + (i - 1) * 5;
    name := names[1 + 2 * i];
    IF i = 1 THEN now := limit_now(); END IF;
    useds[i] := limit_read(name, given[a + 1]::float8, now);
    cap := given[a];
    reserve := GREATEST(0, given[a + 2]::float8);
    amount := GREATEST(0, given[a + 3]::float8);
    IF useds[i] + limit_reserved(name) + reserve + amount - cap > 1e-9 * cap THEN
      room := false;
    END IF;
  END LOOP;
  reply := ARRAY[CASE WHEN (room OR again) AND NOT was_settled THEN '1' ELSE '0' END,
                 limit_epoch(own)];
  IF NOT (room OR again OR was_settled) THEN
    DELETE FROM limit_marks m WHERE m.lease = own;
  END IF;
  FOR i IN 1..places LOOP
    a := 3 + (i - 1) * 5;
    name := names[1 + 2 * i];
    IF room AND NOT again AND NOT was_settled THEN
      useds[i] := useds[i] + GREATEST(0, given[a + 3]::float8);
      IF given[a + 2]::float8 > 0 THEN
        INSERT INTO limit_leases VALUES (name, own, given[a + 2]::float8, now + lasts);
      END IF;
    END IF;
    PERFORM limit_write(name, useds[i], now);
    reply := reply || useds[i]::text || limit_reserved(name)::text;
  END LOOP;
  RETURN reply;
END $body$
"""

_SETTLE = """
CREATE FUNCTION limit_settle(names TEXT[], given TEXT[]) RETURNS TEXT LANGUAGE plpgsql AS $body$
DECLARE
  own TEXT := given[1]; now DOUBLE PRECISION := limit_now(); a INT; name TEXT;
  places INT := (cardinality(names) - 2) / 2; amount DOUBLE PRECISION; was_taken BOOLEAN;
BEGIN
  -- A row that was there already has been locked, and says so.
  INSERT INTO limit_marks AS m VALUES (own, now + 3600, true)
    ON CONFLICT (lease) DO UPDATE SET until = excluded.until, is_settled = true
    WHERE NOT m.is_settled RETURNING m.xmax <> 0 INTO was_taken;
  IF NOT FOUND THEN
    RETURN '0';
  END IF;
  FOR i IN 1..places LOOP
    a := 3 + (i - 1) * 3;
    name := names[1 + 2 * i];
    amount := limit_read(name, given[a]::float8, now) + GREATEST(0, given[a + 2]::float8);
    IF NOT was_taken THEN
      amount := amount + GREATEST(0, given[2 + 3 * places + i]::float8);
    END IF;
    DELETE FROM limit_leases l WHERE l.counter = name AND l.lease = own;
    PERFORM limit_write(name, amount, now);
  END LOOP;
  RETURN '1';
END $body$
"""

_SYNC = """
CREATE FUNCTION limit_sync(names TEXT[], given TEXT[]) RETURNS TEXT LANGUAGE plpgsql AS $body$
DECLARE
  process TEXT := given[1]; lasts DOUBLE PRECISION := given[2]; now DOUBLE PRECISION := limit_now();
  epoch TEXT; name TEXT; amount DOUBLE PRECISION; mark TEXT; own TEXT; reserve TEXT;
  said TEXT[] := ARRAY[]::TEXT[];
BEGIN
  DELETE FROM limit_marks WHERE until <= now;
  DELETE FROM limit_counters c WHERE CASE WHEN counter LIKE '%:budget:%'
    THEN ends > 0 AND ends < now - 86400 ELSE at < now - 86400 END
    AND NOT EXISTS (SELECT FROM limit_leases l WHERE l.counter = c.counter);
  INSERT INTO limit_epochs (epoch) VALUES (process || given[5]) ON CONFLICT DO NOTHING;
  epoch := limit_epoch(process || given[5]);
  IF cardinality(names) < 2 THEN
    RETURN epoch;
  END IF;
  name := names[2];
  amount := limit_read(name, given[3]::float8, now);
  FOR i IN 4..cardinality(names) LOOP
    mark := names[i];
    own := given[2 * i - 2];
    reserve := given[2 * i - 1];
    said := said || own;
    IF reserve <> '' AND NOT EXISTS (
      SELECT FROM limit_marks m WHERE m.lease = own AND m.is_settled
    ) THEN
      INSERT INTO limit_leases VALUES (name, own, reserve::float8, now + lasts)
        ON CONFLICT (counter, lease) DO UPDATE SET until = excluded.until;
    END IF;
  END LOOP;
  DELETE FROM limit_leases l WHERE l.counter = name AND starts_with(l.lease, process)
    AND NOT l.lease = ANY(said) AND substr(l.lease, length(process) + 1)::bigint < given[5]::bigint;
  PERFORM limit_write(name, amount, now);
  PERFORM limit_ends(name, given[4]::float8);
  RETURN epoch;
END $body$
"""

_SEED = """
CREATE FUNCTION limit_seed(names TEXT[], given TEXT[]) RETURNS TEXT[] LANGUAGE plpgsql AS $body$
DECLARE
  now DOUBLE PRECISION := limit_now(); amount DOUBLE PRECISION; reply TEXT[] := ARRAY[]::TEXT[];
BEGIN
  FOR i IN 1..cardinality(names) LOOP
    amount := GREATEST(limit_read(names[i], 0, now), given[2 * i]::float8);
    PERFORM limit_write(names[i], amount, now);
    PERFORM limit_ends(names[i], given[2 * i + 1]::float8);
    reply := reply || (amount + limit_reserved(names[i]))::text;
  END LOOP;
  RETURN reply;
END $body$
"""

LIMITS = Migrations(
    "limits",
    [
        [
            "CREATE UNLOGGED TABLE limit_counters (counter TEXT PRIMARY KEY,"
            " used DOUBLE PRECISION NOT NULL DEFAULT 0, at DOUBLE PRECISION NOT NULL,"
            " ends DOUBLE PRECISION NOT NULL DEFAULT 0)",
            "CREATE UNLOGGED TABLE limit_leases (counter TEXT NOT NULL, lease TEXT NOT NULL,"
            " reserve DOUBLE PRECISION NOT NULL, until DOUBLE PRECISION NOT NULL,"
            " PRIMARY KEY (counter, lease))",
            "CREATE UNLOGGED TABLE limit_marks (lease TEXT PRIMARY KEY,"
            " until DOUBLE PRECISION NOT NULL, is_settled BOOLEAN NOT NULL)",
            "CREATE UNLOGGED TABLE limit_epochs (place BIGINT PRIMARY KEY DEFAULT 1,"
            " epoch TEXT NOT NULL)",
            *(_READ, _RESERVED, _WRITE, _ENDS, _NOW, _EPOCH, _TAKE, _SETTLE, _SYNC, _SEED),
        ]
    ],
)


class PostgresCounters(SharedCounters):
    """Counters in PostgreSQL, by functions of its own.

    Args:
        address: `postgres://...`; it may hold a password.
        lease_seconds, renew_seconds, answer_seconds: as in `SharedCounters`.
    """

    store = "PostgreSQL"

    most_questions = 8
    """Each takes a connection."""

    _has_tables = False

    def _connect(self) -> None:
        try:
            self._storage = open_storage(self._address, [LIMITS])
        except StorageError as error:
            raise ProviderStartError(f"`server.fleet`: {error}") from None
        self._idle: list[Any] = []

    async def _disconnect(self) -> None:
        for each in self._idle:
            each.terminate()
        self._idle.clear()

    def _opening_seconds(self) -> float:
        return 0.0 if self._idle else self._connect_seconds

    async def _execute(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        if not self._has_tables:
            try:
                await self._storage.start()
            finally:
                await self._storage.stop()
            self._has_tables = True
        connection = self._idle.pop() if self._idle else await self._opened()
        given = [str(each) for each in arguments]
        names = [lease_of(each) for each in keys]
        try:
            question = f"SELECT limit_{script}($1, $2)"
            answer = await connection.fetchval(question, names, given, timeout=self._answer_seconds)
        except BaseException:
            # What hangs is not asked again, and nobody waits for its end.
            connection.terminate()
            raise
        self._idle.append(connection)
        return [int(answer[0]), *answer[1:]] if script == "take" else answer

    async def _opened(self) -> Any:
        import asyncpg

        return await asyncpg.connect(
            self._address,
            timeout=self._connect_seconds,
            server_settings=SERVER_SETTINGS,
        )

    def _troubles(self) -> tuple[type[Exception], ...]:
        import asyncpg

        return (
            OSError,
            TimeoutError,
            StorageError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
        )

    def _is_no_answer(self, error: Exception) -> bool:
        return isinstance(error, TimeoutError)
