"""Images: `data:` URLs, and what is fetched of the URLs that callers send."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from llama_compat.errors import APIError
from llama_compat.media.images import images_in, parse_data_url
from llama_compat.types import (
    CompletionMessage,
    DocumentContent,
    ImageContent,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
)
from providers.remote.http1 import dialing
from providers.remote.upstream import images
from providers.remote.upstream.images import IMAGES_AND_DOCUMENTS, ImageDownloader, ImageLimits
from providers.remote.upstream.public_web import MAX_REDIRECTS, is_public

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PAPER = b"%PDF-1.7"


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """A web server on this machine; its URL."""

    async def image(request: web.Request) -> web.Response:
        return web.Response(body=PNG, content_type="image/png")

    async def paper(request: web.Request) -> web.Response:
        return web.Response(body=PAPER, content_type="application/pdf")

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "image/png"})
        await response.prepare(request)
        while True:
            await response.write(PNG)

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="hello", content_type="text/html")

    async def hop(request: web.Request) -> web.Response:
        left = int(request.match_info["left"])
        raise web.HTTPFound(f"/hop/{left - 1}" if left else "/image")

    async def elsewhere(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://localhost:{request.url.port}/image")

    async def stuck(request: web.Request) -> web.Response:
        await stop.wait()
        return web.Response()

    stop = asyncio.Event()
    application = web.Application()
    handlers: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
        "/image": image,
        "/paper": paper,
        "/endless": endless,
        "/page": page,
        "/stuck": stuck,
        "/elsewhere": elsewhere,
        "/hop/{left}": hop,
    }
    for path, handler in handlers.items():
        application.router.add_get(path, handler)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    stop.set()
    await runner.cleanup()


def limits(**settings: object) -> ImageLimits:
    return ImageLimits.model_validate({"allow_private_addresses": True, **settings})


def test_reads_data_urls() -> None:
    image = parse_data_url("data:image/png;base64,aGk=", "messages[0].content")
    assert (image.media_type, image.base64) == ("image/png", "aGk=")
    assert image.data_url == "data:image/png;base64,aGk="
    jpeg = base64.b64encode(b"\xff\xd8\xff\xe0 and more").decode()
    for said in ("image/png", "image/jpeg", "image/jpg", "image/heic"):
        assert parse_data_url(f"data:{said};base64,{jpeg}", "x").media_type == "image/jpeg"
    assert parse_data_url("data:image/png;base64,/9", "x").media_type == "image/png"
    assert parse_data_url("data:image/png;base64,Qk0=", "x").media_type == "image/png"
    assert parse_data_url("DATA:image/JPG;name=a;BASE64,aGk=", "x").media_type == "image/jpeg"


@pytest.mark.parametrize(
    "url", ["", "data:", "data:image/png,hi", "data:text/html;base64,aGk=", "ftp://x/y.png"]
)
def test_refuses_other_urls(url: str) -> None:
    with pytest.raises(APIError) as refused:
        parse_data_url(url, "messages[3].content")
    assert refused.value.param == "messages[3].content"


async def test_fetches_each_image_once(server: str) -> None:
    url = f"{server}/hop/{MAX_REDIRECTS - 1}"
    inline = "data:image/png;base64,aGk="
    said = CompletionMessage.of("Before.", (ToolCall("c", "f", {}, "{}"),))
    messages = (
        UserMessage("Hello"),
        said,
        UserMessage((TextContent("Look:"), ImageContent(url, "high"), ImageContent(inline))),
        ToolResponseMessage("call", (ImageContent(url),)),
    )
    async with ImageDownloader(limits()) as downloader:
        inlined = await downloader.inline(messages)
    fetched = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert inlined == (
        messages[0],
        said,
        UserMessage((TextContent("Look:"), ImageContent(fetched, "high"), ImageContent(inline))),
        ToolResponseMessage("call", (ImageContent(fetched),)),
    )


async def test_documents_are_fetched_for_who_takes_them(server: str) -> None:
    paper = DocumentContent(f"{server}/paper", "a.pdf")
    messages = (UserMessage((ImageContent(f"{server}/image"), paper)),)
    async with ImageDownloader(limits(max_count=2)) as downloader:
        ((_, fetched),) = (
            each.content for each in await downloader.inline(messages, IMAGES_AND_DOCUMENTS)
        )
        ((image, left),) = (each.content for each in await downloader.inline(messages))
    url = f"data:application/pdf;base64,{base64.b64encode(PAPER).decode()}"
    assert fetched == DocumentContent(url, "a.pdf")
    assert isinstance(image, ImageContent)
    assert image.url.startswith("data:image/png")
    assert left == paper


@pytest.mark.parametrize(
    ("path", "settings", "why"),
    [
        ("/image", {}, "no PDF"),
        ("/paper", {"max_bytes": 3}, "larger than 3 bytes"),
        ("/paper", {"allow_private_addresses": False}, "not on the public internet"),
    ],
)
async def test_refuses_what_is_no_small_public_document(
    server: str, path: str, settings: dict[str, object], why: str
) -> None:
    messages = (UserMessage("Hello"), UserMessage((DocumentContent(server + path),)))
    async with ImageDownloader(limits(**settings)) as downloader:
        with pytest.raises(APIError, match=why) as refused:
            await downloader.inline(messages, IMAGES_AND_DOCUMENTS)
    assert (refused.value.status, refused.value.code) == (400, "invalid_document_url")
    assert refused.value.param == "messages[1].content"


@pytest.mark.parametrize(
    ("path", "settings", "why"),
    [
        ("/page", {}, "no image"),
        ("/nothing", {}, "404"),
        ("/endless", {"max_bytes": 10_000}, "larger than 10000 bytes"),
        ("/stuck", {"timeout": 0.2}, "over 0.2 s"),
        (f"/hop/{MAX_REDIRECTS}", {}, "redirects over"),
        ("/image", {"allow_private_addresses": False}, "not on the public internet"),
        ("/hop/1", {"allow_private_addresses": False}, "not on the public internet"),
    ],
)
async def test_refuses_what_is_no_small_public_image(
    server: str, path: str, settings: dict[str, object], why: str
) -> None:
    messages = (UserMessage("Hello"), UserMessage((ImageContent(server + path),)))
    async with ImageDownloader(limits(**settings)) as downloader:
        with pytest.raises(APIError, match=why) as refused:
            await downloader.inline(messages)
    assert refused.value.status == 400
    assert refused.value.param == "messages[1].content"


@pytest.mark.parametrize("host", ["localhost", "0x7f000001", "127.1", "[::1]", "[::ffff:7f00:1]"])
async def test_no_spelling_of_an_address_leads_into_the_own_network(server: str, host: str) -> None:
    port = server.rpartition(":")[2]
    async with ImageDownloader(ImageLimits()) as downloader:
        with pytest.raises(APIError, match="can't be fetched"):
            await downloader.inline([UserMessage((ImageContent(f"http://{host}:{port}/image"),))])


async def test_no_name_leads_into_the_own_network(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that is connected to counts, whatever the name led to when it was looked at."""
    loop, port = asyncio.get_running_loop(), int(server.rpartition(":")[2])
    answers = iter(["8.8.8.8", "127.0.0.1"])

    async def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        where = (next(answers), port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where)]

    async def connect(opened: socket.socket, where: tuple[str, int]) -> None:
        reached.append(where[0])
        raise OSError("out of reach")

    reached: list[str] = []
    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    monkeypatch.setattr(loop, "sock_connect", connect)
    monkeypatch.setattr(dialing, "NAMES_KEPT_SECONDS", 0)
    image = [UserMessage((ImageContent(f"http://rebinding.example:{port}/image"),))]
    async with ImageDownloader(ImageLimits()) as downloader:
        with pytest.raises(APIError, match="out of reach"):
            await downloader.inline(image)
        with pytest.raises(APIError, match=r"127\.0\.0\.1 is not on the public internet"):
            await downloader.inline(image)
    assert reached == ["8.8.8.8"]


async def test_redirections_are_looked_at_as_well(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first server counts as public here; what it redirects to is the same under its name.
    def refuse(address: str) -> None:
        asked.append(address)
        if len(asked) > 1:
            raise PermissionError(13, "not on the public internet")

    asked: list[str] = []
    monkeypatch.setattr(images, "refuse_private", refuse)
    image = [UserMessage((ImageContent(f"{server}/elsewhere"),))]
    async with ImageDownloader(ImageLimits()) as downloader:
        with pytest.raises(APIError, match="not on the public internet"):
            await downloader.inline(image)
    assert asked[0] == "127.0.0.1"
    assert len(asked) > 1


async def test_so_many_images_and_no_more(server: str) -> None:
    messages = [
        UserMessage(tuple(ImageContent(f"{server}/image?{turn}.{each}") for each in range(3)))
        for turn in range(2)
    ]
    again = UserMessage((ImageContent(f"{server}/image?0.0"),))
    async with ImageDownloader(limits(max_count=6)) as downloader:
        inlined = await downloader.inline([*messages, again])
    assert all("data:" in image.url for each in inlined for image in images_in(each.content))
    async with ImageDownloader(limits(max_count=5)) as downloader:
        with pytest.raises(APIError, match=r"6 images .* no more than 5") as refused:
            await downloader.inline(messages)
    assert (refused.value.status, refused.value.param) == (400, "messages[1].content")


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
        "2606:4700:4700::5efe:808:808",
    ],
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "192.0.0.1",
        "192.88.99.1",
        "198.18.0.1",
        "203.0.113.1",
        "240.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "2002:a00:1::",
        "2002:808:808::",
        "64:ff9b::a00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "64:ff9b:1::808:808",
        "64:ff9b:1:ffff:ffff:ffff:808:808",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:0:127.0.0.1",
        "::ffff:169.254.169.254",
        "2001::1",
        "2001:0:808:808::",
        "2001:db8::1",
        "2606:4700:4700::5efe:a00:1",
        "2606:4700:4700::200:5efe:7f00:1",
        "3fff::1",
        "5f00::1",
        "fec0::1",
        "100::1",
        "fe80::1%eth0",
        "4000::1",
        "1fff::1",
    ],
)
def test_private_addresses(address: str) -> None:
    assert not is_public(address)
