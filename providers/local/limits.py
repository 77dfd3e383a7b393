"""What a model can't do that a request asks: said before the engine sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from llama_compat.errors import context_length_exceeded, invalid_parameter, prompt_too_long
from llama_compat.types import ChatCompletionRequest, CompletionRequest, SamplingParams

if TYPE_CHECKING:
    from providers.local.engine import LocalModel


PromptRequest = ChatCompletionRequest | CompletionRequest


def context_limit(request: PromptRequest, model: LocalModel) -> int:
    """How many tokens prompt and reply may have together."""
    return min(model.context_length, request.context_length or model.context_length)


def check_length(characters: int, request: PromptRequest, model: LocalModel, param: str) -> None:
    """Check that a prompt of so many characters may fit, before anything is made of it.

    Raises:
        APIError: 400; it would not if each of its tokens were the model's longest.
    """
    check_tokens(-(-characters // model.tokenizer.longest_token), request, model, param)


def check_tokens(least: int, request: PromptRequest, model: LocalModel, param: str) -> None:
    """Check that a prompt fits that has `least` tokens or more.

    Raises:
        APIError: 400; it does not.
    """
    limit = context_limit(request, model)
    if least > limit:
        raise prompt_too_long(limit, least, param)


def max_tokens(
    request: PromptRequest,
    prompt_tokens: int,
    model: LocalModel,
    param: str,
) -> int:
    """How many tokens may be generated: as many as were asked for, or all that fit.

    Args:
        request: what was asked for, and how much of the context it may have.
        prompt_tokens: how many there are already.
        model: whose context it is.
        param: the request's field that holds the prompt.

    Raises:
        APIError: 400; they can never fit.
    """
    sampling = request.sampling
    limit = context_limit(request, model)
    room = limit - prompt_tokens
    wanted = max(room, 1) if sampling.max_tokens is None else sampling.max_tokens
    if wanted > room:
        error = context_length_exceeded(limit, prompt_tokens, wanted)
        if room <= 0:
            error.param = param
        raise error
    if sampling.min_tokens > wanted:
        raise invalid_parameter(
            "min_tokens",
            f"'min_tokens' is {sampling.min_tokens}, but there are to be at most {wanted} tokens.",
        )
    return wanted


def check_token_ids(sampling: SamplingParams, model: LocalModel) -> None:
    """Check that all token ids in `sampling` are the model's.

    Raises:
        APIError: 400; one is not.
    """
    named: dict[str, Iterable[int]] = {
        "logit_bias": sampling.logit_bias,
        "stop_token_ids": sampling.stop_token_ids,
        "allowed_token_ids": sampling.allowed_token_ids,
    }
    for param, token_ids in named.items():
        for token_id in token_ids:
            if token_id >= model.vocab_size:
                raise invalid_parameter(
                    param,
                    f"Invalid token id in '{param}': {token_id}. The model '{model.name}' has the"
                    f" ids 0 to {model.vocab_size - 1}.",
                ).about(model.name)
