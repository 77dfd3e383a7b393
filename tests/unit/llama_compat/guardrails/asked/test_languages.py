"""Which language a text is in, and of which nobody says any."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("py3langid", reason="needs the extra 'language'")

from llama_compat.guardrails.asked import languages
from llama_compat.guardrails.asked.languages import NO_LANGUAGE, identifier, letters, outside
from llama_compat.guardrails.settings import LANGUAGES, CheckSettings, LanguageSettings

ENGLISH = "The quick brown fox jumps over the lazy dog, and nobody minds that it does so again."
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund, und niemand hat etwas dagegen."
FRENCH = "Le renard brun saute par-dessus le chien paresseux, et personne n'y trouve à redire."
CHINESE = "敏捷的棕色狐狸跳过了那只懒惰的狗，没有人对此表示反对。"
RUSSIAN = "Быстрая коричневая лиса прыгает через ленивую собаку, и никто не возражает."
TABLE = "| 17 | 4711 | 0.25 | 1e-9 | --- |\n" * 10


def only(*allow: str, **more: Any) -> LanguageSettings:
    return LanguageSettings.model_validate({"allow": allow, **more})


@pytest.mark.parametrize("text", [FRENCH, CHINESE, RUSSIAN, FRENCH * 40])
def test_what_is_in_another_language_is_found(text: str) -> None:
    assert outside([text], only("en", "de"))
    assert outside(["Hi", text], only("en"))


@pytest.mark.parametrize("text", [ENGLISH, GERMAN, ENGLISH * 1000, f"{ENGLISH} {GERMAN}"])
def test_what_is_in_a_language_that_is_allowed_is_not(text: str) -> None:
    assert not outside([text], only("en", "de", unknown="block"))


def test_one_text_is_not_lost_among_others() -> None:
    assert outside([ENGLISH * 20, FRENCH], only("en"))
    # A sentence that somebody cites is.
    assert not outside([f"{ENGLISH * 3} {FRENCH}"], only("en"))


@pytest.mark.parametrize("text", ["", "no", "Hola", "ok!", "1 2 3 4 5 6 7 8 9", "你好", TABLE])
def test_what_is_too_short_goes_by(text: str) -> None:
    assert not outside([text], only("en", unknown="block"))


def test_short_texts_are_looked_at_as_one() -> None:
    assert outside(FRENCH.split(), only("en"))
    assert not outside(ENGLISH.split(), only("en", unknown="block"))


@pytest.mark.parametrize("module", [languages, inspect, pytest])
def test_code_is_in_no_other_language(module: Any) -> None:
    source = inspect.getsource(module)
    for size in (60, 300, len(source)):
        pieces = [source[at : at + size] for at in range(0, len(source), size)][:200]
        assert not [each for each in pieces if outside([each], only("en"))]


def test_a_template_says_what_becomes_of_what_nobody_can_tell() -> None:
    unknown = "xq zrt plok vrmp qwx jkl zzt brrp fnord qux" * 3
    assert not outside([unknown], only("en"))
    assert outside([unknown], only("en", unknown="block"))


def test_letters_count_as_a_language_needs_them() -> None:
    assert [letters(each) for each in ("ab 12!", "да", "你好")] == [2, 4, 6]


def test_a_template_may_name_what_can_be_told() -> None:
    assert set(LANGUAGES) == set(identifier().labels) - {NO_LANGUAGE}
    check = {"name": "x", "language": {"allow": ["en", "xx"]}}
    with pytest.raises(ValidationError, match="'xx' is no language that can be told"):
        CheckSettings.model_validate(check)
