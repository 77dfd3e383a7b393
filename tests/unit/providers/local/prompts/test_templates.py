"""Chat templates: written as transformers writes them, and ended whatever they do."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    GreedySamplingStrategy,
    SamplingParams,
    UserMessage,
)
from providers.base import ProviderModel
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from providers.local.prompts.templates import renderer as renderer_module
from providers.local.prompts.templates.renderer import (
    RendererClosed,
    TemplateBrokenOff,
    TemplateComplaint,
    TemplateRenderer,
)
from providers.local.provider import LocalProvider
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from providers.local.torch_engine.tokenizer import HubTokenizer
from tests.tiny_ggufs import gguf_of
from tests.tiny_models import CHAT_TEMPLATE, byte_level_tokenizer, make_model
from tests.unit.providers.local.engines import until

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"

DOUBLING = (
    "{% set all = namespace(text='x') %}{% for i in range(99) %}"
    "{% set all.text = all.text + all.text %}{% endfor %}{{ all.text | length }}"
)

TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "title": "<Größe>"}},
    }
]

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief & <kind>."},
    {"role": "user", "content": 'Größe "日本" 🙂\n  of it?\n'},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "weather", "arguments": {"city": "Köln", "days": 3}},
            }
        ],
    },
    {"role": "tool", "content": "{}", "tool_call_id": "c1", "name": "weather"},
]

TEMPLATES: dict[str, str | dict[str, str]] = {
    "plain": CHAT_TEMPLATE,
    "white space": (
        "{% for m in messages %}\n    {% if loop.first %}\n  first{% endif %}\n"
        "  {{- m.role }}\n\t{% endfor %}\nend\n"
    ),
    "tojson": "{{ tools | tojson }}{{ tools | tojson(indent=2) }}{{ messages | tojson }}",
    "loop controls": (
        "{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}"
        "{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content | trim }}{% endfor %}"
    ),
    "generation": (
        "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}"
        "{{ m.content }}{{ x }}{% endgeneration %}{{ x }}{% endfor %}"
    ),
    "macros and namespaces": (
        "{% macro say(m, all) %}{% set all.n = all.n + 1 %}{{ m['role'] | upper }}{% endmacro %}"
        "{% set all = namespace(n=0) %}{% for m in messages %}{{ say(m, all) }}{% endfor %}"
        "{{ all.n }}{{ messages[1:] | length }}{{ messages | map(attribute='role') | join(',') }}"
    ),
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ documents is none }}",
    "time": "{{ strftime_now('%Y') }}",
    "calls": (
        "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}"
        "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
        "{% endfor %}{% endfor %}{% endfor %}{{ messages[0].content.split('&')[0] }}"
    ),
    "several": {"default": "plain {{ messages | length }}", "tool_use": "{{ tools | length }}"},
}


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_writes_what_it_writes_in_transformers(
    template: str | dict[str, str], tools: Any
) -> None:
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=template,
    )
    expected = fast.apply_chat_template(
        MESSAGES, tools=tools, tokenize=False, add_generation_prompt=True
    )
    tokenizer = HubTokenizer(fast)
    try:
        assert tokenizer.render_chat(MESSAGES, tools) == expected
    finally:
        tokenizer.close()


# What they may do ---------------------------------------------------------------------------------


@pytest.fixture
def a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a template may compute."""
    monkeypatch.setattr(renderer_module, "CPU_SECONDS", 1)


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none but the test's own; others may have left some."""
    monkeypatch.setattr(renderer_module, "_idle", renderer_module._Idle())


@pytest.fixture
def renderer() -> Any:
    one = TemplateRenderer()
    yield one
    one.close()


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (DOUBLING, "more than 1 GiB of memory"),
        ("{{ 'x' * 10**10 }}", "more than 1 GiB of memory"),
        ("{{ '%9999999999d' % 1 }}", "more than 1 GiB of memory"),
        ("{{ 'x' * 10**8 }}", "more than 67,108,864 characters"),
    ],
    ids=["doubling", "times", "width", "long"],
)
def test_what_a_template_may_not_do(renderer: TemplateRenderer, template: str, why: str) -> None:
    with pytest.raises(TemplateBrokenOff, match=why):
        renderer.render(template, {})
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"


@pytest.mark.usefixtures("a_second")
@pytest.mark.parametrize(
    "template", [ENDLESS, "{{ (7 ** 9999999) ** 99 }}"], ids=["turns", "a single call into C"]
)
def test_what_has_no_end_is_broken_off(renderer: TemplateRenderer, template: str) -> None:
    with pytest.raises(TemplateBrokenOff, match="computed for more than 1 seconds"):
        renderer.render(template, {})
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"


def test_its_process_knows_nothing_of_ours(
    own_processes: None, renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-vendor")
    with pytest.raises(TemplateBrokenOff):  # and another is started
        renderer.render("{{ '%9999999999d' % 1 }}", {})
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"
    (process,) = renderer_module._idle._processes
    environment = Path(f"/proc/{process._process.pid}/environ").read_bytes()
    assert b"LC_ALL=C.UTF-8" in environment
    assert b"sk-of-a-vendor" not in environment


def test_what_a_template_may_compute_unless_told_otherwise() -> None:
    assert renderer_module.CPU_SECONDS == 5


def test_what_a_template_complains_about(renderer: TemplateRenderer) -> None:
    with pytest.raises(TemplateComplaint, match=r"^roles must alternate$"):
        renderer.render("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(TemplateComplaint, match="Expected an expression"):
        renderer.check("{% for %}")
    with pytest.raises(TemplateComplaint, match="recursion"):
        renderer.render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {})
    with pytest.raises(TemplateComplaint, match="unsafe"):
        renderer.render("{{ ''.__class__.__mro__ }}", {})


def test_a_process_that_is_gone_is_replaced(
    own_processes: None, renderer: TemplateRenderer
) -> None:
    renderer.render("", {})
    for process in renderer_module._idle._processes:
        process.kill()
        process._process.wait()
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"


def test_what_is_rendered_can_be_broken_off(renderer: TemplateRenderer) -> None:
    raised: list[BaseException] = []

    def render() -> None:
        try:
            renderer.render(ENDLESS, {})
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=render)
    thread.start()
    while not renderer._busy:
        time.sleep(0.01)
    renderer.close()
    thread.join(30)
    assert [type(error) for error in raised] == [RendererClosed]
    with pytest.raises(RendererClosed):
        renderer.render("", {})


# In a provider ------------------------------------------------------------------------------------


@asynccontextmanager
async def running(engine: str, *folders: Path) -> AsyncIterator[LocalProvider]:
    provider: LocalProvider
    if engine == "torch":
        config = TorchConfig(device="cpu", dtype="float32")
        provider = TorchProvider("local", config, [ProviderModel(str(each)) for each in folders])
    else:
        pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
        files = [gguf_of(each, each.with_suffix(".gguf")) for each in folders]
        models = [ProviderModel(str(each)) for each in files]
        provider = LlamaCppProvider("local", LlamaCppConfig(threads=1), models)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


async def chat(provider: LocalProvider, model: str) -> Any:
    sampling = SamplingParams(GreedySamplingStrategy(), max_tokens=1)
    collector = Collector()
    request = ChatCompletionRequest(model, (UserMessage("Hello"),), sampling)
    async for event in provider.chat_completion(request):
        collector.add(event)
    return collector.chat_completion()


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "well")


@pytest.mark.parametrize("engine", ["torch", "llama_cpp"])
@pytest.mark.parametrize(
    ("template", "seconds", "why"),
    [
        (ENDLESS, 1, "computed for more than 1 seconds"),
        # Where memory is slow to come by, that takes more than a second.
        (DOUBLING, 30, "more than 1 GiB of memory"),
    ],
    ids=["endless", "doubling"],
)
async def test_a_template_that_runs_away_harms_no_other_model(
    well: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    template: str,
    seconds: int,
    why: str,
) -> None:
    monkeypatch.setattr(renderer_module, "CPU_SECONDS", seconds)
    wild = make_model(tmp_path / "wild", chat_template=template)
    async with running(engine, well, wild) as provider:
        first, second = provider.engines
        failing = asyncio.create_task(chat(provider, second))
        while not failing.done():
            reply = await asyncio.wait_for(chat(provider, first), 30)
            assert reply.usage.completion_tokens == 1
            await asyncio.wait([failing], timeout=0.05)  # rather than ask as fast as it answers
        with pytest.raises(APIError) as caught:
            await failing
    error = caught.value
    assert (error.status, error.code) == (500, "chat_template_failed")
    assert second in error.message
    assert why in error.message
    assert "choose another model" in error.message


@pytest.mark.parametrize("engine", ["torch", "llama_cpp"])
async def test_a_provider_stops_while_a_template_runs_away(tmp_path: Path, engine: str) -> None:
    wild = make_model(tmp_path / "wild", chat_template=ENDLESS)
    async with running(engine, wild) as provider:
        [model] = provider.engines
        failing = asyncio.create_task(chat(provider, model))
        renderer = provider.engines[model].model.tokenizer._renderer  # type: ignore[attr-defined]
        await until(lambda: bool(renderer._busy))
        await provider.stop()
        with pytest.raises(APIError) as caught:
            await failing
    # It has not come to the end of the time that a template has.
    assert caught.value.code == "server_shutting_down"
