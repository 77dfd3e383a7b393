"""`server.log_usage`: what every request cost is in its line of the log."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.integration.native_suite import MESSAGES, Reply
from tests.integration.native_vendor import NativeVendor
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import ServerProcess, running, write_template


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ServerProcess, OpenAIVendor]]:
    with NativeVendor() as vendor:
        template = write_template(
            tmp_path_factory.mktemp("usage") / "usage.yaml",
            server={"log_usage": True},
            providers=[
                {
                    "id": "up",
                    "type": "remote::passthrough",
                    "config": {"base_url": f"{vendor.url}/v1"},
                },
                {"id": "echo", "type": "local::echo"},
            ],
            models=[{"id": "m", "provider": "up"}, {"id": "echo", "provider": "echo"}],
        )
        with running(template) as process:
            yield process, OpenAIVendor(vendor, process.base_url)


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_a_stream_is_counted_and_who_did_not_ask_is_not_told(
    server: tuple[ServerProcess, OpenAIVendor], options: dict[str, bool] | None
) -> None:
    process, vendor = server
    vendor.will_say(Reply(text="Hi"))
    more = {} if options is None else {"stream_options": options}
    with openai.OpenAI(base_url=process.base_url, api_key="x") as client:
        name = f"asks-{options}".replace(" ", "").replace("'", "").replace('"', "")
        chunks = list(
            client.chat.completions.create(  # type: ignore[call-overload]
                model="m",
                messages=MESSAGES,
                stream=True,
                extra_headers={"x-request-id": name},
                **more,
            )
        )
    assert vendor.server.last.body["stream_options"] == {"include_usage": True}
    assert any(chunk.usage for chunk in chunks) == (options == {"include_usage": True})
    assert " tokens=30+25" in process.wait_for_log(name)


@pytest.mark.parametrize("model", ["m", "echo"])
def test_a_whole_reply_is_counted(server: tuple[ServerProcess, OpenAIVendor], model: str) -> None:
    process, vendor = server
    vendor.will_say(Reply(text="Hi"))
    with openai.OpenAI(base_url=process.base_url, api_key="x") as client:
        client.chat.completions.create(
            model=model, messages=MESSAGES, extra_headers={"x-request-id": f"whole-{model}"}
        )
    expected = {"m": " tokens=30+25", "echo": " tokens=3+1"}[model]
    assert expected in process.wait_for_log(f"whole-{model}")
