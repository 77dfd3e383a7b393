"""Every architecture of transformers says what its own `generate` says, or is refused.

Each is a tiny random model, saved and loaded as a model folder is, whose prompt is cut into pieces.
"""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from llama_compat.types import SamplingParams
from providers.base import ProviderStartError
from providers.local.engine import Generation
from providers.local.torch_engine.loading.checkpoint import read_model
from providers.local.torch_engine.model.unbatched import (
    UnbatchedModel,
    UnbatchedRunner,
    Way,
    find_way,
)
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, opened, running
from tests.unit.providers.local.tiny_architectures import VOCABULARY, tiny_config

PROMPT_TOKENS = 70
"""More than the windows, and than the tokens that a model is tried with."""

STEP_TOKENS = 16
NEW_TOKENS = 3

READ_AS_PARTS = "from_pretrained reads the config of its text part, which has no auto class"

LEFT_OUT: dict[str, str] = {
    "blt": "its four models share sizes that have no names in their configs",
    "dots3_note": "its config has sizes for each of 46 layers; its text part is in the table",
    "emu3": READ_AS_PARTS,
    "gemma3n": "its eyes need Pillow and timm",
    "gemma4_assistant": "it predicts for another model, and does not run alone",
    "gemma4_unified_assistant": "it predicts for another model, and does not run alone",
    "mllama": READ_AS_PARTS,
    "musicgen": "it says codes of sounds",
    "musicgen_melody": "it says codes of sounds",
    "reformer": "its code takes prompts of whole chunks alone",
    "xlstm": "its code expects heads of the sizes that it was published with",
}
"""Those that can't be made tiny, or do not run on text, and why."""

NOT_NEXT = "not what comes of its tokens alone"
REFUSED: dict[str, str] = {"xlm": NOT_NEXT, "xlnet": NOT_NEXT}
"""Those that predict a masked token in place of the next: the error that says so."""

WAYS: dict[str, Way] = {
    **dict.fromkeys(("falcon_mamba", "jamba", "mamba"), Way.tokens),
    **dict.fromkeys(("recurrent_gemma", "zamba"), Way.tokens),
    # They keep nothing, or what they keep can't be gone on from.
    **dict.fromkeys(("cpmant", "minimax", "moshi", "openai-gpt"), Way.whole),
    "prophetnet": Way.whole,
}
"""Those that can't go on in pieces."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More of them are slower, as everything is tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(folder: Path, kind: str, **members: Any) -> Any:
    """A random model of this `model_type`, as it comes out of a folder."""
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(tiny_config(kind, **members))
    with torch.no_grad():
        for parameter in module.parameters():
            # Untrained norms and biases are ones and zeros, which hide mistakes.
            parameter.add_(torch.randn_like(parameter) * 0.05)
    module.save_pretrained(folder)
    return read_model(transformers.AutoModelForCausalLM, folder, dtype=torch.float32).eval()


def prompt_of(length: int) -> list[int]:
    chosen = random.Random(length)
    return [chosen.randrange(VOCABULARY // 4, VOCABULARY // 2) for _ in range(length)]


def expected(
    module: Any, prompt: list[int], tokens: int, *, way: Way = Way.pieces
) -> tuple[list[int], Any]:
    """What `generate` says, and the logits of each token.

    Where what a model keeps is not to be relied on, `generate` is told to do without it.
    """
    ids = torch.tensor([prompt])
    output = module.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens,
        min_new_tokens=tokens, output_logits=True, return_dict_in_generate=True,
        use_cache=way is not Way.whole,
    )  # fmt: skip
    return output.sequences[0, len(prompt) :].tolist(), torch.cat(output.logits).float()


def found(
    runner: UnbatchedRunner, prompt: list[int], said: list[int], step: int = STEP_TOKENS
) -> Any:
    """The logits of each token of `said`, `step` tokens of the prompt at a time."""
    sequence = TorchSequence(Generation(tuple(prompt), SamplingParams(), 99), lambda _: None)
    rows = []
    for token_id in said:
        while sequence.uncomputed:
            chunk = Chunk(sequence, min(sequence.uncomputed, step))
            logits = runner.forward([chunk])
            assert len(logits) == chunk.logits
            sequence.computed += chunk.tokens
        rows.append(logits[-1])
        sequence.token_ids.append(token_id)
    return torch.stack(rows)


@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_architecture(tmp_path: Path, kind: str) -> None:
    if kind in LEFT_OUT:
        pytest.skip(LEFT_OUT[kind])
    module = made(tmp_path, kind)
    model = UnbatchedModel(module)
    embeddings = module.get_input_embeddings().num_embeddings
    if kind in REFUSED:
        with pytest.raises(Exception, match=REFUSED[kind]):
            find_way(model, embeddings, torch.float32)
        return
    way, vocab_size = find_way(model, embeddings, torch.float32)
    assert way is WAYS.get(kind, Way.pieces)
    prompt = prompt_of(PROMPT_TOKENS)
    said, logits = expected(module, prompt, NEW_TOKENS, way=way)
    off = found(UnbatchedRunner(model, way, vocab_size), prompt, said) - logits
    assert float(off.norm() / logits.norm()) < 1e-4


PICTURES: dict[str, dict[str, Any]] = {
    "llava": {"image_token_index": 119, "vision_feature_layer": -1},
    "mistral3": {"image_token_index": 119},
    "mllama": {},
    "qwen2_5_vl": {
        "image_token_id": 119,
        "video_token_id": 118,
        "vision_start_token_id": 117,
        "vision_end_token_id": 116,
        "text_config": {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [1, 1, 2],
            }
        },
    },
}


def folder_of(folder: Path, module: Any) -> Path:
    """A model folder, with the tokenizer of others; its context is as long as theirs."""
    make_model(folder)
    (folder / "model.safetensors").unlink()
    module.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", PICTURES)
async def test_models_that_take_pictures_take_text(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    config = tiny_config(kind, **PICTURES[kind])
    module = transformers.AutoModelForImageTextToText.from_config(config).eval()
    folder_of(tmp_path, module)
    prompts = [prompt_of(12), prompt_of(50)]
    async with running(tmp_path, max_step_tokens=16) as engine:
        results = [await generate(engine, prompt, 4, ignore_eos=True) for prompt in prompts]
    assert [each.token_ids for each in results] == [
        expected(module, each, 4)[0] for each in prompts
    ]
    assert "takes text alone" in caplog.text


async def test_a_prompt_of_more_than_a_step_of_a_model_that_takes_it_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = made(tmp_path / "made", "jamba")
    folder_of(tmp_path, module)
    prompt = prompt_of(150)
    async with running(tmp_path) as engine:
        result = await generate(engine, prompt, 6, ignore_eos=True)
        scored = await generate(engine, prompt, 1, logprobs=0, prompt_logprobs=True)
    assert result.token_ids == expected(module, prompt, 6)[0]
    assert "its prompt at once, then a token at a time" in caplog.text
    with torch.inference_mode():
        logprobs = module(torch.tensor([prompt])).logits[0].log_softmax(-1)
    assert [each.logprob for each in scored.prompt_scores] == pytest.approx(
        [float(logprobs[place, token]) for place, token in enumerate(prompt[1:])], abs=1e-3
    )


@pytest.mark.parametrize("kind", ["t5", "clip_text_model"])
def test_what_is_no_language_model_is_called_by_its_kind(tmp_path: Path, kind: str) -> None:
    make_model(tmp_path)
    config = transformers.CONFIG_MAPPING[kind]()
    config.save_pretrained(tmp_path)
    with pytest.raises(ProviderStartError, match=f"of the kind '{kind}'") as caught:
        opened(tmp_path)
    assert "Pull it again" not in str(caught.value)


def test_a_model_of_which_no_way_can_be_relied_on_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, made(tmp_path / "made", "xlnet"))
    with pytest.raises(ProviderStartError, match=NOT_NEXT):
        opened(tmp_path, context_length=100)


def test_a_context_that_no_memory_holds(tmp_path: Path) -> None:
    folder_of(tmp_path, made(tmp_path / "made", "stablelm"))
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 1_000_000_000})
    )
    with pytest.raises(ProviderStartError, match=r"1000000000 tokens.*set 'context_length'"):
        opened(tmp_path)
    engine = opened(tmp_path, context_length=256)
    engine.stop()
    assert engine.model.context_length == 256


LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0, 3.0, 2.0, 9.0],
    "original_max_position_embeddings": 64,
    "factor": 4.0,
}


@pytest.fixture(scope="module")
def long_rope(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model that tests ask alone."""
    return made(tmp_path_factory.mktemp("long"), "llama", rope_parameters=LONG_ROPE)


@pytest.mark.parametrize("step", [16, 99])
@pytest.mark.parametrize("length", [20, 60, 64, 65, 90])
def test_long_rope_changes_at_its_length(long_rope: Any, length: int, step: int) -> None:
    """Within the original context, across its end and beyond."""
    module = long_rope
    model = UnbatchedModel(module)
    assert model.lengths == (64,)
    prompt, tokens = prompt_of(length), 10
    said, logits = [], []
    for _ in range(tokens):
        with torch.inference_mode():
            row = module(torch.tensor([[*prompt, *said]]), use_cache=False).logits[0, -1]
        said.append(int(row.argmax()))
        logits.append(row)
    off = found(UnbatchedRunner(model, Way.pieces, VOCABULARY), prompt, said, step)
    assert float((off - torch.stack(logits)).norm() / off.norm()) < 1e-4


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("length", [30, 64, 90])
def test_scores_of_a_prompt_in_every_way(long_rope: Any, way: Way, length: int) -> None:
    module = long_rope
    runner = UnbatchedRunner(UnbatchedModel(module), way, VOCABULARY)
    prompt = prompt_of(length)
    generation = Generation(tuple(prompt), SamplingParams(), 9, logprobs=0, prompt_logprobs=True)
    sequence = TorchSequence(generation, lambda _: None)
    rows = []
    while sequence.uncomputed:
        chunk = Chunk(sequence, min(sequence.uncomputed, STEP_TOKENS))
        rows.append(runner.forward([chunk]))
        sequence.computed += chunk.tokens
    with torch.inference_mode():
        logits = module(torch.tensor([prompt]), use_cache=False).logits[0]
    assert float((torch.cat(rows) - logits).norm() / logits.norm()) < 1e-4


def test_two_new_tokens_of_a_model_that_goes_on_with_one_at_a_time(tmp_path: Path) -> None:
    """It is given all of them anew."""
    module = made(tmp_path, "mamba")
    runner = UnbatchedRunner(UnbatchedModel(module), Way.tokens, VOCABULARY)
    prompt = prompt_of(30)
    sequence = TorchSequence(Generation(tuple(prompt), SamplingParams(), 9), lambda _: None)
    runner.forward([Chunk(sequence, len(prompt))])
    sequence.computed = len(prompt)
    sequence.token_ids += prompt[:2]
    logits = runner.forward([Chunk(sequence, 2)])[-1]
    with torch.inference_mode():
        wanted = module(torch.tensor([[*prompt, *prompt[:2]]]), use_cache=False).logits[0, -1]
    assert float((logits - wanted).norm() / wanted.norm()) < 1e-4
