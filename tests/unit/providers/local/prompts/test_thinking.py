"""What chat templates can be told of thinking; they are written as those of the models named."""

from __future__ import annotations

from typing import Any

import pytest

from providers.local.prompts.thinking import (
    always_thinks,
    can_be_told,
    names_in,
    unread,
    untold,
    variables_for,
)

SAID = "{% for message in messages %}{{ message.content.split('</think>')[-1] }}{% endfor %}"

QWEN3 = SAID + (
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
DEEPSEEK_31 = (
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}"
    + SAID
    + "{% if add_generation_prompt %}{{ '<think>' if thinking else '</think>' }}{% endif %}"
)
GPT_OSS = (
    "{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}{%- endif %}"
    "Reasoning: {{ reasoning_effort }}" + SAID
)
SEVERAL = "{% if enable_thinking %}Think {{ reasoning_effort }}{% endif %}" + SAID
R1 = SAID + "{% if add_generation_prompt and not ns.is_tool %}<|Assistant|><think>\n{% endif %}"
PLAIN = (
    "{# enable_thinking is for another #}{% for message in messages %}{{ message.thinking }}"
    "{{ message['enable_thinking'] }} thinking {% endfor %}{{ 'reasoning_effort' }}"
)


@pytest.mark.parametrize(
    ("template", "effort", "told"),
    [
        (QWEN3, "none", {"enable_thinking": False}),
        (QWEN3, "minimal", {"enable_thinking": True}),
        (QWEN3, "high", {"enable_thinking": True}),
        (QWEN3, None, {}),
        (DEEPSEEK_31, "none", {"thinking": False}),
        (DEEPSEEK_31, "low", {"thinking": True}),
        (GPT_OSS, "low", {"reasoning_effort": "low"}),
        (GPT_OSS, "high", {"reasoning_effort": "high"}),
        (GPT_OSS, None, {}),
        (SEVERAL, "none", {"enable_thinking": False}),
        (SEVERAL, "medium", {"enable_thinking": True, "reasoning_effort": "medium"}),
        (SEVERAL, "xhigh", {"enable_thinking": True}),
        (R1, None, {}),
        (PLAIN, "none", {}),
    ],
)
def test_an_effort_is_told_in_the_templates_own_words(
    template: str, effort: str | None, told: dict[str, Any]
) -> None:
    assert variables_for(effort, template) == told
    assert effort is None or untold(effort, template) is None


@pytest.mark.parametrize(
    ("template", "effort", "why"),
    [
        (GPT_OSS, "none", "knows 'low', 'medium', 'high'"),
        (GPT_OSS, "xhigh", "knows 'low', 'medium', 'high'"),
        (R1, "none", "always thinks"),
        (R1, "high", "nothing in the model's chat template"),
        (PLAIN, "low", "nothing in the model's chat template"),
    ],
)
def test_what_a_template_can_not_be_told(template: str, effort: str, why: str) -> None:
    said = untold(effort, template)
    assert said is not None
    assert why in said
    assert variables_for(effort, template) == {}


def test_which_models_can_be_told() -> None:
    assert [*map(can_be_told, [QWEN3, DEEPSEEK_31, GPT_OSS, R1, PLAIN])] == [
        *(True, True, True, False, False)
    ]
    assert [*map(always_thinks, [QWEN3, DEEPSEEK_31, GPT_OSS, R1, PLAIN])] == [
        *(False, False, False, True, False)
    ]


def test_names_stand_in_tags_and_are_no_attributes() -> None:
    assert names_in("a {{ b.c }} {# d #}{%- if e['f'] == \"g\" %}h{% endif %}") == {
        *("b", "if", "e", "endif")
    }
    assert not unread({"today": "Monday", "other": 1}, "{{ today }}")
    assert unread({"other": 1}, "{{ today }} other {{ its.other }}")
