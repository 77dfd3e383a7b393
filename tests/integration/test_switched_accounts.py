"""A conversation over the Responses API that goes on at another account, or began elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.strict_responses import StrictResponses
from tests.integration.strict_vendors import StrictVendors

DROPPED = "x-llama-compat-dropped"
TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
QUESTION: Any = {"role": "user", "content": "Weather in Bern?"}


@pytest.fixture(scope="module")
def accounts() -> Iterator[StrictResponses]:
    with StrictResponses() as accounts:
        yield accounts


@pytest.fixture(scope="module")
def server(
    accounts: StrictResponses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with StrictVendors() as thinking:
        providers: list[dict[str, Any]] = [
            {
                "id": name,
                "type": "remote::openai",
                "config": {"base_url": f"{accounts.url}/{name}/v1", "api_key": "sk-x"},
            }
            for name in ("first", "second")
        ]
        config = {"base_url": thinking.base_url("deepseek"), "api_key": "sk-x", "wires": ["chat"]}
        providers.append({"id": "deepseek", "type": "remote::deepseek", "config": config})
        models = [
            {"id": each["id"], "provider": each["id"], "provider_model": "own"}
            for each in providers
        ]
        path = tmp_path_factory.mktemp("accounts") / "accounts.yaml"
        with running(write_template(path, providers=providers, models=models)) as server:
            yield server


def ask(server: ServerProcess, model: str, items: list[Any]) -> Any:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
    return client.responses.with_raw_response.create(
        model=model,
        input=items,
        tools=[TOOL],
        store=False,
        include=["reasoning.encrypted_content"],
    )


def answered(items: list[Any], output: Any) -> list[Any]:
    """The conversation with what the model said, and the answers to its calls."""
    said = [item.model_dump(exclude_none=True) for item in output]
    given = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "22"}
        for item in output
        if item.type == "function_call"
    ]
    return [*items, *said, *given]


def test_an_account_gets_its_own_thoughts_back(
    server: ServerProcess, accounts: StrictResponses
) -> None:
    items = answered([QUESTION], ask(server, "first", [QUESTION]).parse().output)
    reply = ask(server, "first", items)
    assert (reply.parse().output_text, DROPPED in reply.headers) == ("Sunny.", False)
    assert [item.get("type") for item in accounts.asked["first"][-1]["input"]] == [
        None,
        "reasoning",
        "function_call",
        "function_call_output",
    ]


def test_another_account_is_asked_without_what_it_can_not_unseal(
    server: ServerProcess, accounts: StrictResponses
) -> None:
    items = answered([QUESTION], ask(server, "first", [QUESTION]).parse().output)
    accounts.refused.clear()
    reply = ask(server, "second", items)
    assert (reply.parse().output_text, reply.headers[DROPPED]) == ("Sunny.", "messages.thinking")
    assert accounts.refused == ["invalid_encrypted_content"]
    assert [item.get("type") for item in accounts.asked["second"][-1]["input"]] == [
        None,
        "function_call",
        "function_call_output",
    ]


@pytest.mark.parametrize("keeps_seals", [False, True])
def test_thoughts_in_clear_of_another_model_are_left_out(
    server: ServerProcess, accounts: StrictResponses, keeps_seals: bool
) -> None:
    output = ask(server, "deepseek", [QUESTION]).parse().output
    assert [item.type for item in output] == ["reasoning", "function_call"]
    items = answered([QUESTION], output)
    if not keeps_seals:
        items[1].pop("encrypted_content", None)
    accounts.refused.clear()
    reply = ask(server, "first", items)
    assert (reply.parse().output_text, accounts.refused) == ("Sunny.", [])


def test_what_is_refused_for_another_reason_is_asked_once(
    server: ServerProcess, accounts: StrictResponses
) -> None:
    items = answered([QUESTION], ask(server, "first", [QUESTION]).parse().output)
    accounts.refused.clear()
    with pytest.raises(openai.BadRequestError, match="No tool output"):
        ask(server, "second", items[:-1])
    assert accounts.refused == [None]
