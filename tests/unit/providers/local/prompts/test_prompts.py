"""What chat templates are given of pictures, and of texts where they read these in parts alone."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ToolResponseMessage,
    UserMessage,
)
from providers.local.media.audio import AudioFile
from providers.local.media.pictures import PictureFile
from providers.local.media.placing import Layout, SensedFiles, expanded, placed
from providers.local.prompts.prompts import (
    _rendered,
    _without_tools,
    refuse_media,
    render_messages,
    wants_parts,
)
from providers.local.prompts.templates.renderer import TemplateRenderer, variables

IMAGE = ImageContent("data:image/png;base64,AA==")


class Templated:
    """A tokenizer, as far as it renders."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._renderer = TemplateRenderer()
        self.rendered = 0

    def render_chat(self, messages: Any, tools: Any, own: Any = None) -> str:
        self.rendered += 1
        return self._renderer.render(self._template, variables(messages, tools, {}, own))

    def close(self) -> None:
        self._renderer.close()


EACH = "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}"


@pytest.fixture
def tokenizer(request: pytest.FixtureRequest) -> Iterator[Templated]:
    made = Templated("{% for message in messages %}" + request.param + "{% endfor %}")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("tokenizer", "wanted"),
    [
        ("{{ message['content'] }}", False),
        ("{% if message['content'] is string %}{{ message['content'] }}{% endif %}", False),
        (EACH, True),
        ("{{ message['content'][0]['text'] | trim }}", True),
        # What writes nothing of either is given texts, as ever.
        ("{{ message['role'] }}", False),
        ("{{ raise_exception('no') }}", False),
    ],
    indirect=["tokenizer"],
)
def test_it_is_tried_what_a_template_reads(tokenizer: Templated, wanted: bool) -> None:
    assert wants_parts(tokenizer) is wanted  # type: ignore[arg-type]
    tried = tokenizer.rendered
    assert wants_parts(tokenizer) is wanted  # type: ignore[arg-type]
    assert tokenizer.rendered == tried


def test_pictures_are_parts_in_the_order_in_which_they_came() -> None:
    messages = (
        SystemMessage("Be brief."),
        UserMessage((TextContent("See "), IMAGE, TextContent(" and "), IMAGE)),
        ToolResponseMessage("call_1", (TextContent("It: "), IMAGE), is_error=True),
    )
    system, user, tool = render_messages(messages)
    picture = {"type": "image"}
    assert system["content"] == "Be brief."
    assert user["content"] == [
        *({"type": "text", "text": "See "}, picture, {"type": "text", "text": " and "}, picture)
    ]
    assert [part["type"] for part in tool["content"]] == ["text", "text", "image"]


def test_all_are_parts_where_a_template_reads_nothing_else() -> None:
    messages = (UserMessage("Hi"), CompletionMessage.of("Hello.", []))
    assert [each["content"] for each in render_messages(messages, in_parts=True)] == [
        [{"type": "text", "text": "Hi"}],
        [{"type": "text", "text": "Hello."}],
    ]


class _Sense:
    """Of pictures, or of audio."""

    def __init__(self, kind: str = "image", mark: str = "<image>", token_id: int = 7) -> None:
        self.kind, self.mark, self.token_id = kind, mark, token_id

    def layout(self, file: Any) -> Layout:
        raise NotImplementedError


def sensed(*layouts: Layout, files: Any = (), **sense: Any) -> SensedFiles:
    return SensedFiles(_Sense(**sense), files, layouts)  # type: ignore[arg-type]


def test_pictures_take_the_places_of_their_marks() -> None:
    media = sensed(Layout("<a><a>", 2), Layout("<b>", 1))
    assert expanded(["See <image>", " and <image>."], media) == ["See <a><a>", " and <b>."]
    with pytest.raises(APIError, match="places for 1 pictures, of the 2"):
        expanded(["See <image>"], media)
    heard = sensed(Layout("<c>", 1), kind="audio", mark="<audio>")
    with pytest.raises(APIError, match="places for 0 audio files, of the 1"):
        expanded(["See <image>"], heard)


def test_their_parts_are_found_among_the_tokens() -> None:
    """One in three runs, one in a single run behind it."""
    pictures = [PictureFile(bytes([each]), "messages", 1, 1) for each in (1, 2)]
    layouts = Layout("", 5), Layout("", 2, (1, 2))
    tokens = [0, 7, 7, 1, 7, 7, 2, 7, 3, 7, 7, 4]
    found = placed(tokens, [sensed(*layouts, files=pictures)])
    assert [each.runs for each in found] == [
        (range(1, 3), range(4, 6), range(7, 8)),
        (range(9, 11),),
    ]
    assert [each.grid for each in found] == [None, (1, 2)]
    with pytest.raises(RuntimeError, match="6 tokens of a prompt"):
        placed([7] * 6, [sensed(*layouts, files=pictures)])


def test_media_of_several_kinds_are_in_the_order_in_which_they_are_there() -> None:
    first, last = (PictureFile(bytes([each]), "messages", 1, 1) for each in (1, 2))
    heard = AudioFile(b"", "messages", 1, 16_000)
    seen = sensed(Layout("", 1), Layout("", 2), files=(first, last))
    audio = sensed(Layout("", 2), files=(heard,), kind="audio", token_id=8)
    found = placed([7, 0, 8, 8, 7, 7], [seen, audio])
    assert [each.file for each in found] == [first, heard, last]
    assert [each.runs for each in found] == [(range(1),), (range(2, 4),), (range(4, 6),)]


def alone(tokenizer: Any = None) -> Any:
    """A model of text alone, as far as it is asked what it takes."""
    return SimpleNamespace(
        name="m", senses={}, inputs=("text",), tokenizer=tokenizer, tool_format=None
    )


def test_media_are_left_to_a_model_that_takes_them() -> None:
    with pytest.raises(UnsupportedHere, match="takes text alone; leave the image out") as refused:
        refuse_media(alone(), [UserMessage((IMAGE,))])
    assert (refused.value.status, refused.value.code) == (400, "unsupported_content")


@pytest.mark.parametrize("tokenizer", ["{{ raise_exception('no') }}"], indirect=True)
def test_what_a_template_refuses_is_left_to_another_s(tokenizer: Templated) -> None:
    with pytest.raises(UnsupportedHere, match="can't render these messages: no") as refused:
        _rendered(alone(tokenizer), [UserMessage("Hi")], None, {})
    assert (refused.value.status, refused.value.param) == (400, "messages")


def test_calls_are_left_to_a_model_that_knows_of_some() -> None:
    asked = ChatCompletionRequest("m", (UserMessage("Hi"), ToolResponseMessage("1", "out")))
    with pytest.raises(UnsupportedHere, match=r"can't render tool calls") as refused:
        _without_tools(alone(), asked)
    assert refused.value.param == "messages[1]"
