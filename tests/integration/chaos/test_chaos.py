"""While one vendor of three fails, in whatever way, no client that could be answered fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chaos.clients import CLIENTS, TIMEOUT_SECONDS, Answer, Clients
from tests.integration.chaos.vendors import (
    FAULTS,
    NAMES,
    VendorProcess,
    histories,
    three_vendors,
    until,
)
from tests.integration.server_process import ServerProcess, running, write_template

FIRST_BYTE_SECONDS = 1.0

COOLDOWN_SECONDS = 1

BROKEN = "two"

BALANCES = ("least_busy", "round_robin", "fastest")

WHOLE = {f"{name}: a b c d e" for name in NAMES}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, VendorProcess]]:
    with three_vendors(tmp_path_factory.mktemp("vendors")) as vendors:
        yield vendors


@pytest.fixture
def vendors(three: Mapping[str, VendorProcess]) -> Mapping[str, VendorProcess]:
    """All of them well, whatever was done to them before."""
    mend_all(three)
    return three


def template(path: Path, vendors: Mapping[str, VendorProcess], **routing: Any) -> Path:
    timeouts = {"connect": 1.0, "first_byte": FIRST_BYTE_SECONDS, "between_bytes": 1.0}
    providers: list[dict[str, Any]] = [
        {
            "id": name,
            "type": "remote::passthrough",
            "config": {"base_url": vendor.url, "timeouts": timeouts},
        }
        for name, vendor in vendors.items()
    ]
    return write_template(
        path / "chaos.yaml",
        providers=[*providers, {"id": "local", "type": "local::echo"}],
        models=[
            {
                "id": "smart",
                "targets": [{"provider": name, "model": "model"} for name in vendors],
                "routing": {"cooldown": {"seconds": COOLDOWN_SECONDS}, **routing},
            },
            {
                "id": "resilient",
                "targets": [{"model": "smart"}, {"provider": "local", "priority": 1}],
                "routing": {"cooldown": {"seconds": COOLDOWN_SECONDS}, **routing},
            },
        ],
    )


def is_right(answer: Answer) -> bool:
    """Whether it is one vendor's answer, all of it and nothing else."""
    return answer.text in WHOLE and answer.is_whole and not answer.error and answer.status == 200


def is_broken_off(answer: Answer) -> bool:
    """Whether content had come when it failed, and the client was told so."""
    began = answer.text and any(whole.startswith(answer.text) for whole in WHOLE)
    return bool(began and answer.error and not answer.is_whole and answer.status == 200)


def is_by(name: str, answer: Answer) -> bool:
    return answer.text.startswith(f"{name}:")


def assert_nothing_was_answered_twice(
    answers: Sequence[Answer], vendors: Mapping[str, VendorProcess]
) -> None:
    """Once a vendor has said something to a client, nobody else is asked."""
    told = histories(vendors)
    for answer in answers:
        by, events = answer.text.partition(":")[0], told.get(answer.request_id, [])
        finished = [event.vendor for event in events if event.what == "done"]
        assert set(finished) <= {by}, (answer, events)
        assert len(finished) <= 1, (answer, events)
        if by in NAMES:
            content = max(event.at for event in events if event[1:] == (by, "content"))
            late = [event for event in events if event.what == "asked" and event.at > content]
            assert late == [], (answer, events)


def assert_all_is_over(server: ServerProcess) -> None:
    """Nothing is in flight any more."""
    until(lambda: not any(target["in_flight"] for target in server.health()["targets"]), 10)


@pytest.mark.parametrize(
    ("fault", "balance"), list(zip(FAULTS, itertools.cycle(BALANCES), strict=False))
)
def test_one_vendor_fails_and_no_client_does(
    vendors: Mapping[str, VendorProcess], tmp_path: Path, fault: str, balance: str
) -> None:
    with running(template(tmp_path, vendors, balance=balance)) as server:
        with Clients(server.url) as clients:
            clients.wait_for(30)
            clients.wait_for(1, lambda answer: is_by(BROKEN, answer))
            vendors[BROKEN].break_(fault)
            clients.wait_for(100)
            vendors[BROKEN].mend()
            clients.wait_for(5, lambda answer: is_by(BROKEN, answer) and is_right(answer))
        assert_all_is_over(server)
        asked = {target["id"]: target for target in server.health()["targets"]}
        if fault != "slow":
            assert asked[f"{BROKEN}/model"]["errors"], "nothing happened to it"
        assert not asked["one/model"]["errors"]
        assert not asked["three/model"]["errors"]
    # A process that dies or freezes may have been in the middle of an answer.
    in_the_middle = fault in ("killed", "frozen", "dying_after_content")
    wrong = [
        answer
        for answer in clients.answers
        if not is_right(answer) and not (in_the_middle and is_broken_off(answer))
    ]
    assert wrong == []
    assert_nothing_was_answered_twice(clients.answers, vendors)


@pytest.mark.parametrize(
    "faults", [("killed", "frozen"), ("server_error", "html_page"), ("too_many", "resetting")]
)
def test_two_vendors_fail_and_no_client_does(
    vendors: Mapping[str, VendorProcess], tmp_path: Path, faults: tuple[str, str]
) -> None:
    broken = [vendors["two"], vendors["three"]]
    with running(template(tmp_path, vendors, balance="least_busy")) as server:
        with Clients(server.url) as clients:
            clients.wait_for(30)
            for vendor, fault in zip(broken, faults, strict=True):
                vendor.break_(fault)
            clients.wait_for(100)
            mend_all(vendors)
            for name in NAMES:
                clients.wait_for(5, lambda answer, name=name: is_by(name, answer))
        assert_all_is_over(server)
    for answer in clients.answers:
        assert is_right(answer) or ("killed" in faults and is_broken_off(answer)), answer
    assert_nothing_was_answered_twice(clients.answers, vendors)


def break_all(vendors: Mapping[str, VendorProcess]) -> None:
    for vendor, fault in zip(vendors.values(), ("killed", "frozen", "server_error"), strict=True):
        vendor.break_(fault)


def mend_all(vendors: Mapping[str, VendorProcess]) -> None:
    for vendor in vendors.values():
        vendor.mend()


def test_all_fail_and_come_back(vendors: Mapping[str, VendorProcess], tmp_path: Path) -> None:
    with running(template(tmp_path, vendors, deadline=10)) as server:
        with Clients(server.url) as clients:
            clients.wait_for(30)
            break_all(vendors)
            clients.wait_for(30, lambda answer: answer.status >= 500)
            mend_all(vendors)
            for name in NAMES:
                clients.wait_for(5, lambda answer, name=name: is_by(name, answer))
            mended = len(clients.answers)
            clients.wait_for(30)
        assert_all_is_over(server)
    for answer in clients.answers:
        refused = answer.status in (500, 502, 503, 504) and answer.error and not answer.text
        assert is_right(answer) or is_broken_off(answer) or refused, answer
        assert answer.seconds < TIMEOUT_SECONDS / 2, answer
    assert all(map(is_right, clients.answers[mended + CLIENTS :]))
    assert_nothing_was_answered_twice(clients.answers, vendors)


def test_with_every_vendor_down_the_engine_inside_answers_until_one_is_back(
    vendors: Mapping[str, VendorProcess], tmp_path: Path
) -> None:
    def is_local(answer: Answer) -> bool:
        return answer.text == "a b c d e" and answer.is_whole and answer.status == 200

    with running(template(tmp_path, vendors, deadline=10)) as server:
        with Clients(server.url, "resilient") as clients:
            clients.wait_for(30)
            break_all(vendors)
            clients.wait_for(100, is_local)
            vendors["one"].mend()
            clients.wait_for(50, lambda answer: is_by("one", answer))
            mend_all(vendors)
            for name in NAMES:
                clients.wait_for(5, lambda answer, name=name: is_by(name, answer))
        assert_all_is_over(server)
    for answer in clients.answers:
        assert is_right(answer) or is_local(answer) or is_broken_off(answer), answer
        if is_local(answer):
            assert answer.headers["x-llama-compat-provider"] == "local"
    assert_nothing_was_answered_twice(clients.answers, vendors)
