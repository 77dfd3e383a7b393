"""How a running server is: what `GET /health` says of its targets, as a table."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from routing.cli.pulling import size_of
from routing.cli.terminal import console, harmless
from routing.cli.terminal import table as empty_table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

TIMEOUT_SECONDS = 10.0

WATCH_SECONDS = 1.0
"""How often the table is renewed."""

Health = Mapping[str, Any]


class StatusError(Exception):
    """The server did not say how it is; the message is a sentence that says what to do."""


class KeyWanted(StatusError):
    """It tells only those who have another key: asking again changes nothing."""


class Server:
    """A server that is asked how it is, again and again.

    Its one connection stays open: of several workers it is always the same that answers.

    Args:
        url: where the server is; what its OpenAI clients have as their base URL will do.
        api_key: the server's key; None if it wants none.

    Raises:
        StatusError: that is no URL.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._url = url
        parts = urlsplit(url)
        connections: dict[str, Callable[..., http.client.HTTPConnection]] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        if parts.scheme not in connections or not parts.hostname:
            raise StatusError(f"'{url}' is no URL such as http://localhost:8321")
        self._path = parts.path.rstrip("/").removesuffix("/v1").removesuffix("/v1/openai")
        self._connection = connections[parts.scheme](
            parts.hostname, parts.port, timeout=TIMEOUT_SECONDS
        )
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}

    def health(self) -> Health:
        """How it is now.

        Raises:
            StatusError: it did not say.
        """
        try:
            self._connection.request("GET", f"{self._path}/health", headers=self._headers)
            told = json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise StatusError(
                f"No server answers at {self._url} ({error or type(error).__name__}). Start one"
                " (llama-compat run starter), or name another with --url."
            ) from error
        except ValueError:
            told = None
        if not isinstance(told, dict) or "status" not in told:
            raise StatusError(f"What answers at {self._url} is no llama-compat server.")
        if told["status"] == "starting":
            raise StatusError(f"The server at {self._url} is {told['status']}. Ask again later.")
        if "targets" not in told:
            given = "The key that was given is none that opens this. " if self._headers else ""
            raise KeyWanted(
                f"{given}The server at {self._url} tells only those about its targets who have its"
                " metrics_key, its admin_key or one of its api_keys: --api-key KEY, or the variable"
                " OPENAI_API_KEY."
            )
        return told

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def table(health: Health, now: float) -> Table:
    """The targets of `health`, one a row.

    Args:
        health: what the server said.
        now: when it did, in seconds since the epoch.
    """
    from rich.text import Text

    shown = empty_table()
    shown.add_column("\nTarget")
    shown.add_column("In\nflight", justify="right")
    shown.add_column("\nAsked", justify="right")
    shown.add_column("\nFailed")
    shown.add_column("Cooling\nuntil")
    shown.add_column("First\ncontent", justify="right")
    cache_used = {
        (each["provider"], each["model"], each["place"]): each
        for each in health.get("engines", ())
        if each["total_blocks"]
    }
    if cache_used:
        shown.add_column("KV\ncache", justify="right")
    for target in health["targets"]:
        cooling = target["cooling_seconds"]
        until = time.strftime("%H:%M:%S", time.localtime(now + cooling)) if cooling else ""
        is_drained = target.get("drained", False)
        waiting = f" (+{target['waiting']})" if target["waiting"] else ""
        engine = cache_used.get((target["provider"], target["model"], target.get("place", "")))
        cache = [_percent(engine)] if cache_used else []
        shown.add_row(
            Text(target["id"], style="yellow" if is_drained else "red" if cooling else ""),
            f"{target['in_flight']}{waiting}",
            str(target["attempts"]),
            f"{target['errors']} {target['last_error'] or ''}",
            "drained" if is_drained else until,
            _seconds(target["first_content_seconds"] or target["whole_reply_seconds"]),
            *cache,
        )
    return shown


def shown(health: Health, now: float) -> Group:
    """All that there is to show of `health`; the rest as for `table`."""
    from rich.console import Group

    lost = health.get("lost_devices", ())
    said = f"Lost until the server is started again: {', '.join(lost)}" if lost else None
    parts = (table(health, now), memory_table(health), said)
    return Group(*(each for each in parts if each is not None))


def memory_table(health: Health) -> Table | None:
    """The models that share memory, one a row, and what there is of each device; None where none
    do."""
    from rich.text import Text

    memory = health.get("memory")
    if memory is None:
        return None
    there = ", ".join(
        f"{device} {size_of(each['used'])} of {size_of(each['bound'])}"
        for device, each in memory["devices"].items()
    )
    shown = empty_table()
    shown.title, shown.title_justify = there, "left"
    shown.add_column("Model")
    shown.add_column("Where")
    shown.add_column("Takes", justify="right")
    shown.add_column("In use", justify="right")
    shown.add_column("Waiting", justify="right")
    shown.add_column("Loads", justify="right")
    shown.add_column("Kept")
    for each in memory["models"]:
        left = each["expires_seconds"]
        shown.add_row(
            Text(f"{each['provider']}/{each['model']}"),
            each["state"],
            size_of(sum(each["sizes"].values())) if each["sizes"] else "",
            str(each["leases"]),
            str(each["waiting"]),
            f"{each['loads']}{_took(each['load_seconds'])}",
            each["keep"] + ("" if left is None else f", {_seconds(left)} left"),
        )
    return shown


def _took(seconds: float | None) -> str:
    return "" if seconds is None else f" ({_seconds(seconds)})"


def _percent(engine: Mapping[str, Any] | None) -> str:
    if engine is None:
        return ""
    return f"{100 * engine['used_blocks'] / engine['total_blocks']:.0f} %"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def watch(server: Server) -> None:
    """Show the table, renewed every second, until Ctrl-C; what is wrong with the server stands in
    its place for as long as it is.

    Raises:
        KeyWanted: there will be no table, however long one waits.
    """
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            try:
                live.update(shown(server.health(), time.time()), refresh=True)
            except KeyWanted:
                raise
            except StatusError as error:
                live.update(harmless(str(error)), refresh=True)
            time.sleep(WATCH_SECONDS)
