"""What a request asks of a store that is not there, by both APIs whose replies are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llama_compat.dialects.gemini_interactions.call import parse_request as parse_interaction
from llama_compat.dialects.openai_responses.input.requests import parse_request as parse_response
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.errors import APIError

APIS: dict[str, Callable[..., Any]] = {
    "response": parse_response,
    "interaction": parse_interaction,
}


@pytest.mark.parametrize("noun", APIS)
@pytest.mark.parametrize("is_earlier", [True, False])
def test_nothing_goes_on_and_nothing_runs_where_nothing_is_kept(
    noun: str, is_earlier: bool
) -> None:
    previous = f"previous_{noun}_id"
    asked = {previous: "x_1"} if is_earlier else {"background": True}
    body = {"model": "m", "input": "Hi", **asked}
    with pytest.raises(APIError, match=f"keeps no {noun}s.*server: {{responses_store") as refused:
        APIS[noun](body, "m")
    told = (refused.value.status, refused.value.param, refused.value.code)
    if is_earlier:
        assert told == (400, previous, f"previous_{noun}_not_found")
        assert f"The {noun} 'x_1' is not known" in refused.value.message
    else:
        assert told == (400, "background", "unsupported_parameter")
    keeping = Keeping("x_2", store=True)
    assert APIS[noun](body, "m", keeping=keeping).request.messages
    assert APIS[noun]({**body, **dict.fromkeys(asked)}, "m").request.messages
