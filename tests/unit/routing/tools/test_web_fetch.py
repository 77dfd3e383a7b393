"""What may be read of the web, and what is read of it."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.hosted.settings import WebFetchSettings
from llama_compat.hosted.vocabulary import WebFetchTool
from llama_compat.types import CompletionMessage, Message, TextContent, UserMessage
from providers.remote import http1
from providers.remote.upstream.public_web import refuse_private
from routing.tools.queries import Uses
from routing.tools.tool import ToolError
from routing.tools.toolbox import ReplyTools
from routing.tools.web_fetch import WebFetch
from tests.local_server import Handler, send, serving


async def failing(url: str, tool: WebFetch) -> str:
    with pytest.raises(ToolError) as failed:
        await tool.run({"url": url})
    return failed.value.code


def fetching(client: http1.Client, asked: Any = None, **settings: Any) -> WebFetch:
    tool = asked or WebFetchTool("web_fetch")
    known = WebFetchSettings(**settings)
    return WebFetch(tool, known, client, lambda url: True, Uses(known.max_uses))


async def test_the_servers_own_network_is_not_read() -> None:
    with serving(lambda handler: send(handler, 200, b"secret", "text/plain")) as url:
        client = http1.Client(check_address=refuse_private)
        assert await failing(url, fetching(client)) == "url_not_accessible"
        await client.close()


async def test_redirects_stay_within_the_domains() -> None:
    def answer(handler: Handler) -> None:
        send(handler, 302, b"", location="http://elsewhere.example/")

    with serving(answer) as url:
        client = http1.Client()
        tool = fetching(client, WebFetchTool("web_fetch", allowed_domains=("127.0.0.1",)))
        assert await failing(url, tool) == "url_not_allowed"
        await client.close()


async def test_a_redirection_leads_to_no_private_address() -> None:
    def refuse(address: str) -> None:
        if address != "127.0.0.1":
            raise OSError("not this one")

    with serving(lambda handler: send(handler, 200, b"secret", "text/plain")) as inner:
        port = inner.rpartition(":")[2]

        def answer(handler: Handler) -> None:
            send(handler, 302, b"", location=f"http://127.0.0.2:{port}/")

        with serving(answer) as url:
            client = http1.Client(check_address=refuse)
            assert await failing(url, fetching(client)) == "url_not_accessible"
            gave = await fetching(client).run({"url": inner})
            assert gave.text.startswith("secret")
            await client.close()


@pytest.mark.parametrize(
    ("kind", "size", "code"),
    [("image/png", 10, "unsupported_content_type"), ("text/plain", 5000, "url_not_accessible")],
)
async def test_what_is_no_text_or_too_long_is_not_read(kind: str, size: int, code: str) -> None:
    with serving(lambda handler: send(handler, 200, b"x" * size, kind)) as url:
        client = http1.Client()
        assert await failing(url, fetching(client, max_bytes=1000)) == code
        await client.close()


async def test_no_more_often_than_it_may() -> None:
    with serving(lambda handler: send(handler, 200, b"text", "text/plain")) as url:
        client = http1.Client()
        tool = fetching(client, WebFetchTool("web_fetch", max_uses=1))
        gave = await tool.run({"url": url})
        assert gave.text.startswith("text")
        assert await failing(url, tool) == "max_uses_exceeded"
        await client.close()


def test_only_what_others_than_the_model_named_is_known() -> None:
    messages: list[Message] = [
        UserMessage("Read https://a.example/page, please."),
        CompletionMessage((TextContent("https://evil.test/?q=secret"),)),
    ]
    is_known = ReplyTools(set()).knows_url_of(messages)
    assert is_known("https://a.example/page")
    assert not is_known("https://a.example/pa")
    assert not is_known("https://a.example/page?q=secret")
    assert not is_known("https://evil.test/?q=secret")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://a.example", True),
        ("See https://a.example.", True),
        ("See (https://a.example), or https://b.example: both.", True),
        ("https://a.example: here", True),
        ("https://a.example,https://b.example", True),
        ("https://a.example.evil.test", False),
        ("https://a.example:8080", False),
        ("https://a.example@evil.test", False),
        ("https://a.example/page", False),
        ("https://a.example.evil.test and https://a.example", True),
    ],
)
def test_an_address_is_not_known_by_the_beginning_of_another(text: str, expected: bool) -> None:
    is_known = ReplyTools(set()).knows_url_of([UserMessage(text)])
    assert is_known("https://a.example") is expected


@pytest.mark.parametrize("charset", ["undefined", "idna", "hex", "none", ""])
async def test_a_charset_that_reads_nothing_is_not_heeded(charset: str) -> None:
    kind = f"text/plain; charset={charset}"
    with serving(lambda handler: send(handler, 200, b"a" * 100, kind)) as url:
        client = http1.Client()
        gave = await fetching(client).run({"url": url})
        assert gave.text.startswith("a" * 100)
        await client.close()
