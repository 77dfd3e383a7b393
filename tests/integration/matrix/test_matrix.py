"""Every client API, by its own vendor's SDK, in front of every kind of provider."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from providers.registry import CLASSES, provider_type
from tests.integration import wire
from tests.integration.matrix.clients import CLIENTS, Client
from tests.integration.matrix.providers import (
    HEARING,
    KINDS,
    SEEING,
    STARTERS,
    Everything,
    Kind,
    everything,
)
from tests.integration.matrix.said import CLIP, SCHEMA, TIME, WEATHER, Ask, Refused, Said
from tests.integration.native_suite import Reply
from tests.integration.native_vendor import Answer

SCRIPTED = [name for name, kind in KINDS.items() if kind.vendor]

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

TEXT = "It is 20 °C. 🌞\nTomorrow, too."


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    with everything(tmp_path_factory.mktemp("matrix")) as one:
        yield one


@pytest.fixture(scope="module")
def clients(behind: Everything) -> dict[str, Client]:
    return {name: client(behind.server.url) for name, client in CLIENTS.items()}  # type: ignore[call-arg]


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Client:
    """Each client API in turn."""
    return clients[request.param]


@pytest.fixture(params=list(KINDS))
def name(request: pytest.FixtureRequest) -> str:
    """Each kind of provider in turn."""
    return str(request.param)


@pytest.fixture
def kind(name: str) -> Kind:
    return KINDS[name]


def for_scripted(test: object) -> object:
    """Ask of providers only that can be told what to say."""
    return pytest.mark.parametrize("name", SCRIPTED)(test)


def needs(client: Client, *words: str) -> None:
    """Skip what the client's API has no words for."""
    lacks = set(words) - client.can
    if lacks:
        pytest.skip(f"the API has no words for {', '.join(sorted(lacks))}")


# What is said -------------------------------------------------------------------------------------


@for_scripted
@STREAMED
def test_text(behind: Everything, client: Client, name: str, kind: Kind, stream: bool) -> None:
    behind.will_say(name, Reply(text=TEXT), as_text=client.name == "completions")
    said = client.ask(Ask(kind.model), stream=stream)
    assert said == Said(TEXT, stop="end", tokens=(30, 25))


@pytest.mark.parametrize("name", ["echo", *STARTERS, "fastchat"])
def test_what_is_real_says_the_same_streamed_and_whole(
    client: Client, name: str, kind: Kind
) -> None:
    ask = Ask(kind.model, "One two three four", max_tokens=4)
    whole = client.ask(ask, stream=False)
    streamed = client.ask(ask, stream=True)
    if name not in STARTERS:  # which samples, and has no seed in every API
        assert whole == streamed
        assert whole.text
    assert whole.stop in ("end", "length")
    assert streamed.stop in ("end", "length")
    assert whole.tokens[0] == streamed.tokens[0] > 0


@for_scripted
@STREAMED
def test_thoughts_come_before_the_text(
    behind: Everything, client: Client, name: str, kind: Kind, stream: bool
) -> None:
    needs(client, "effort")
    behind.will_say(name, Reply(text="20 °C", thoughts="Look outside."))
    said = client.ask(Ask(kind.model), stream=stream)
    assert said == Said("20 °C", "Look outside.", stop="end", tokens=(30, 25))


@for_scripted
@STREAMED
@pytest.mark.parametrize("stop", ["length", "filter"])
def test_why_it_ended(
    behind: Everything, client: Client, name: str, kind: Kind, stream: bool, stop: str
) -> None:
    if stop == "filter":
        needs(client, "filter")
    if stop not in kind.stops:
        pytest.skip("the vendor has no word for it")
    behind.will_say(name, Reply(text="It is", stop=stop), as_text=client.name == "completions")
    said = client.ask(Ask(kind.model), stream=stream)
    assert (said.text, said.stop) == ("It is", stop)


# Tools --------------------------------------------------------------------------------------------


@for_scripted
@STREAMED
@pytest.mark.parametrize("count", [1, 2])
def test_calls(
    behind: Everything, client: Client, name: str, kind: Kind, stream: bool, count: int
) -> None:
    needs(client, "tools")
    calls = [("get_weather", {"city": 'Zü"rich'}), ("get_time", {})][:count]
    behind.will_say(name, Reply(text="Let me see.", calls=calls, stop="calls"))
    said = client.ask(Ask(kind.model, tools=[WEATHER, TIME]), stream=stream)
    assert said == Said("Let me see.", calls=calls, stop="calls", tokens=(30, 25))


@STREAMED
def test_a_forced_call(
    behind: Everything, client: Client, name: str, kind: Kind, stream: bool
) -> None:
    needs(client, "tools", "forced")
    calls = [("get_weather", {"city": "Zürich"})]
    behind.will_say(name, Reply(calls=calls, stop="calls"))
    ask = Ask(kind.model, "Zürich", tools=[WEATHER, TIME], forced="get_weather", max_tokens=60)
    if "forced" not in kind.can:
        with pytest.raises(Refused) as refused:
            client.ask(ask, stream=stream)
        assert refused.value.status == 400
        return
    said = client.ask(ask, stream=stream)
    if name in STARTERS:  # a small model, which may run out of tokens inside the call
        assert {called for called, _ in said.calls} == {"get_weather"} or said.stop == "length"
        assert said.stop == "length" or said.calls[0][1].keys() == {"city"}
        return
    assert said.calls == calls
    assert said.stop == "calls"
    if kind.vendor is not None:
        vendor = behind.vendors[name]
        assert vendor.forced_tool(vendor.server.last.body) == "get_weather"


# What is asked ------------------------------------------------------------------------------------


def test_images(behind: Everything, client: Client, name: str, kind: Kind) -> None:
    needs(client, "image")
    behind.will_say(name, Reply(text="A pixel."))
    ask = Ask(kind.model, "What is this?", image=True)
    if "image" in kind.can:
        said = client.ask(ask, stream=False)
        if kind.vendor is not None:
            assert said.text == "A pixel."
            assert b"iVBORw0KGgo" in behind.vendors[name].server.last.content
        return
    with pytest.raises(Refused) as refused:
        client.ask(ask, stream=False)
    assert refused.value.status == 400
    assert "image" in refused.value.message


def test_audio(behind: Everything, client: Client, name: str, kind: Kind) -> None:
    needs(client, "audio")
    behind.will_say(name, Reply(text="Noise."))
    ask = Ask(kind.model, "What is this?", audio=True)
    if "audio" in kind.can:
        assert client.ask(ask, stream=False).text == "Noise."
        # Google's own client writes the other alphabet of base64, which is relayed as it is.
        sent = behind.vendors[name].server.last.content.translate(bytes.maketrans(b"-_", b"+/"))
        assert CLIP.encode() in sent
        return
    with pytest.raises(Refused) as refused:
        client.ask(ask, stream=False)
    assert refused.value.status == 400
    assert "audio" in refused.value.message


def test_audio_is_heard_in_this_process(behind: Everything, client: Client) -> None:
    needs(client, "audio")
    text, heard = (
        client.ask(Ask(HEARING, "What is this?", audio=audio), stream=False)
        for audio in (False, True)
    )
    # 50 columns of half a second are twelve tokens, between two marks.
    assert heard.tokens[0] == text.tokens[0] + 12 + 2
    assert heard.text != text.text


def test_pictures_are_seen_in_this_process(behind: Everything, client: Client) -> None:
    needs(client, "image")
    text, picture = (
        client.ask(Ask(SEEING, "What is this?", image=image), stream=False)
        for image in (False, True)
    )
    # A pixel is made as large as the model wants it: four tokens, between two marks.
    assert picture.tokens[0] == text.tokens[0] + 4 + 2
    assert picture.text != text.text


def test_schemas(behind: Everything, client: Client, name: str, kind: Kind) -> None:
    needs(client, "schema")
    behind.will_say(name, Reply(text='{"city": "Zürich"}'))
    ask = Ask(kind.model, schema=SCHEMA)
    if name in STARTERS:
        said = client.ask(ask, stream=False)
        assert said.text.lstrip().startswith("{")
        assert said.stop == "length" or json.loads(said.text).keys() == {"city"}
        return
    if "schema" in kind.can:
        assert client.ask(ask, stream=False).text == '{"city": "Zürich"}'
        vendor = behind.vendors[name]
        assert "city" in vendor.schema(vendor.server.last.body)["properties"]
        return
    with pytest.raises(Refused) as refused:
        client.ask(ask, stream=False)
    assert refused.value.status == 400


def test_stop_strings(behind: Everything, client: Client, name: str, kind: Kind) -> None:
    needs(client, "stop")
    behind.will_say(name, Reply(text="One "), as_text=client.name == "completions")
    said = client.ask(Ask(kind.model, "One two three", stop=["two"]), stream=False)
    assert said.stop in ("end", "length")
    if kind.vendor is not None:
        assert b'"two"' in behind.vendors[name].server.last.content
    elif name == "echo":
        assert said.text == "One "


def test_effort(behind: Everything, client: Client, name: str, kind: Kind) -> None:
    needs(client, "effort")
    behind.will_say(name, Reply(text="Hi"))
    ask = Ask(kind.model, effort="low")
    if "effort" in kind.can:
        assert client.ask(ask, stream=False).text == "Hi"
        assert b'"low"' in behind.vendors[name].server.last.content.lower()
        return
    # It is a mere wish: a model that does not think answers all the same.
    assert client.ask(ask, stream=False).stop in ("end", "length")
    if kind.vendor is not None:
        assert b'"low"' not in behind.vendors[name].server.last.content.lower()


# What goes wrong ----------------------------------------------------------------------------------


@for_scripted
@STREAMED
def test_a_vendors_error_keeps_its_status(
    behind: Everything, client: Client, name: str, kind: Kind, stream: bool
) -> None:
    body = behind.vendors[name].error_body
    behind.will_answer(name, Answer([body], status=429, headers={"retry-after": "7"}))
    with pytest.raises(Refused) as refused:
        client.ask(Ask(kind.model), stream=stream)
    assert refused.value.status == 429
    assert "slow down" in refused.value.message


@for_scripted
@STREAMED
def test_the_vendors_401_is_not_the_clients(
    behind: Everything, client: Client, name: str, kind: Kind, stream: bool
) -> None:
    behind.will_answer(name, Answer([b'{"error":{"message":"bad key sk-x"}}'], status=401))
    with pytest.raises(Refused) as refused:
        client.ask(Ask(kind.model), stream=stream)
    assert refused.value.status in (500, 502)
    assert "API key" in refused.value.message


@for_scripted
def test_a_stream_that_is_cut_is_no_reply(
    behind: Everything, client: Client, name: str, kind: Kind
) -> None:
    vendor = behind.vendors[name]
    stream = vendor.stream(Reply(text=TEXT * 5))
    cut = stream[: len(stream) // 2]
    kinds = "application/x-ndjson" if name == "ollama-native" else "text/event-stream"
    behind.will_answer(name, Answer([cut], content_type=kinds, break_off=True))
    if client.name == "completions" and name == "openai":
        pytest.skip("the vendor is not scripted for it")
    with pytest.raises(Exception) as failed:  # noqa: PT011 (each SDK has its own)
        client.ask(Ask(kind.model), stream=True)
    assert not isinstance(failed.value, AssertionError)


def test_an_unknown_model_is_404(client: Client, behind: Everything) -> None:
    with pytest.raises(Refused) as refused:
        client.ask(Ask("no-such-model"), stream=False)
    assert refused.value.status == 404
    assert "no-such-model" in refused.value.message


@for_scripted
def test_who_goes_away_is_noticed_upstream(
    behind: Everything, client: Client, name: str, kind: Kind
) -> None:
    vendor = behind.vendors[name]
    if client.name == "completions" and name == "openai":
        pytest.skip("the vendor is not scripted for it")
    stream = vendor.stream(Reply(text=TEXT * 20))
    kinds = "application/x-ndjson" if name == "ollama-native" else "text/event-stream"
    held = Answer([stream[: len(stream) // 2]], content_type=kinds, hold=True)
    behind.will_answer(name, held)
    with client.begin(Ask(kind.model)) as events:
        next(events)
    assert vendor.server.hung_up.wait(10)


def test_nothing_runs_on_when_all_have_gone(behind: Everything, clients: dict[str, Client]) -> None:
    for client in clients.values():
        for name in STARTERS:
            with client.begin(Ask(KINDS[name].model, max_tokens=1000)) as events:
                next(events)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        health = wire.request("GET", f"{behind.server.url}/health").json()
        if (health["running"], health["waiting"]) == (0, 0):
            return
        time.sleep(0.05)
    pytest.fail(f"still at work: {health}")


PARAMETERS = {
    "tools": "tools",
    "schema": "response_format",
    "stop": "stop",
    "effort": "reasoning_effort",
}


@pytest.mark.parametrize(
    "name", [name for name in KINDS if name not in ("openai", "gemini-interactions")]
)
def test_the_readme_says_the_same_of_what_each_can(name: str, kind: Kind) -> None:
    """Its table is made of the providers' `parameters`, and checked against the code elsewhere."""
    types = [type for type in CLASSES if type.endswith(f"::{name}")]
    (provider,) = (provider_type(type).provider for type in types)
    says = {word for word, parameter in PARAMETERS.items() if parameter in provider.parameters}
    if name in STARTERS:
        says.remove("effort")  # which a model's chat template takes; the starter's does not
    assert says == kind.can & PARAMETERS.keys()
