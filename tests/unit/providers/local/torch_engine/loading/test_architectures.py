"""Which models run in batches, and why others don't."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from providers.local.torch_engine.loading.architectures import ARCHITECTURES, why_not
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, running
from tests.unit.providers.local.tiny_architectures import VOCABULARY, tiny_config

REPOSITORY = Path(__file__).parents[6]

TAKE_PICTURES = {
    "gemma3": {},
    "gemma4": {},
    "llama4": {},
    "llava": {},
    "mistral3": {},
    # So many of a head's pairs turn by time, height and width, which for text are the same.
    "qwen2_5_vl": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
    "qwen3_5": {},
    "qwen3_vl": {},
    "smolvlm": {},
}
"""Kinds of models, and what turns their queries where that does not fit to tiny ones."""


def config_of(kind: str, **members: Any) -> Any:
    config = transformers.AutoConfig.for_model(kind)
    for name, value in members.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize("kind", TAKE_PICTURES)
async def test_the_text_of_models_that_take_pictures(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_model(tmp_path)
    torch.manual_seed(0)
    config = tiny_config(kind)
    if TAKE_PICTURES[kind]:
        config.get_text_config().rope_parameters = TAKE_PICTURES[kind]
    module = transformers.AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            # Untrained norms and biases are ones and zeros, which hide mistakes.
            parameter.add_(torch.randn_like(parameter) * 0.05)
    module.save_pretrained(tmp_path)
    prompt = [5 + 7 * number % (VOCABULARY // 2) for number in range(70)]
    ids = torch.tensor([prompt])
    expected = module.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8,
    )[0, len(prompt) :].tolist()  # fmt: skip
    async with running(tmp_path, max_step_tokens=32) as engine:
        assert engine.stats.batched
        cold = await generate(engine, prompt, 8)
        warm = await generate(engine, prompt, 8)
    assert cold.token_ids == expected
    assert (warm.token_ids, warm.cached_tokens) == (cold.token_ids, 64)
    assert "takes text alone here" in caplog.text


@pytest.mark.parametrize(
    ("kind", "members", "reason"),
    [
        ("llama", {}, None),
        ("bloom", {}, "its architecture 'bloom' is none of"),
        ("gpt_oss", {}, None),
        ("gpt_oss", {"swiglu_limit": 8.0}, "its gate is bounded by other numbers: 1.702 and 8.0"),
        ("olmoe", {"clip_qkv": 8.0}, "its queries and keys are clipped"),
        ("cohere", {"use_qk_norm": True}, "each of its heads has norms of its own"),
        ("nemotron", {"hidden_act": "silu"}, "its activation is 'silu'"),
        ("gemma4_text", {"use_bidirectional_attention": "vision"}, None),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "its tokens look ahead"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "its tokens look ahead"),
        ("llama", {"hidden_act": "relu2"}, "its activation is 'relu2'"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "its rotary embeddings are of the type 'dynamic'",
        ),
    ],
)
def test_why_a_model_does_not_run_in_batches(
    kind: str, members: dict[str, Any], reason: str | None
) -> None:
    found = why_not(config_of(kind, **members))
    assert found == reason if found is None or reason is None else found.startswith(reason)


def test_the_guide_names_them() -> None:
    guide = (REPOSITORY / "docs" / "guides" / "local-models.md").read_text("utf-8")
    # A text part is named by the model that it is a part of.
    alone = {name for name in ARCHITECTURES if not name.endswith("_text") or name == "gemma3_text"}
    assert {name for name in alone if f"`{name}`" not in guide} == set()
