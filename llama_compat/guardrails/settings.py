"""The checks of a template: what is looked for in requests and replies, and what is done then."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    model_validator,
)

from llama_compat.guardrails.named import NamedSet
from llama_compat.guardrails.patterns import UnusablePattern, own_pattern
from llama_compat.settings.model import TemplateSettings

Place = Literal["input", "output", "tool_arguments", "tool_results"]
"""What is looked through: what a client sends and what a model says, and of both what tools are
given and what they gave."""

PLACES: tuple[Place, ...] = ("input", "output", "tool_arguments", "tool_results")
"""All of them."""

Mode = Literal["block", "redact", "monitor"]
"""What is done with what is found."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LABEL = re.compile(r"[A-Z][A-Z0-9]{0,31}")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("expected up to 64 letters, digits, '-', '_' and '.': metrics have it too")
    return name


def _check_expressions(expressions: dict[str, str]) -> dict[str, str]:
    for label, expression in expressions.items():
        if not _LABEL.fullmatch(label):
            raise ValueError(
                f"{label!r}: what is found is called by it, as in '<TICKET_1>'; expected up to 32"
                " capital letters and digits"
            )
        try:
            own_pattern(label, expression)
        except UnusablePattern as error:
            raise ValueError(f"{label}: {error}") from None
        except ModuleNotFoundError:
            break  # said once, for the whole check
    return expressions


# fmt: off
LANGUAGES = (
    "ace", "af", "am", "an", "ar", "ary", "arz", "as", "az", "ba", "bcl", "be", "bg", "bn",
    "br", "bs", "ca", "crh", "cs", "cy", "da", "de", "dz", "el", "en", "eo", "es", "et", "eu",
    "ext", "fa", "fi", "fo", "fr", "fuv", "fy", "ga", "gcf", "gcr", "gd", "gl", "gom", "grc",
    "gu", "gug", "guw", "ha", "hbo", "he", "hi", "hr", "ht", "hu", "hy", "id", "ig", "is",
    "it", "ja", "jv", "ka", "kab", "kik", "kk", "km", "kn", "ko", "ku", "ky", "la", "lb",
    "lg", "lij", "ln", "lo", "lt", "ltg", "lv", "mg", "mk", "ml", "mn", "mr", "ms", "mt",
    "my", "ne", "nl", "nn", "no", "nso", "oc", "om", "or", "pa", "pcm", "pl", "ps", "pt",
    "qu", "ro", "ru", "rw", "sa", "sdh", "se", "si", "sk", "sl", "sn", "so", "sq", "sr", "st",
    "sv", "sw", "ta", "te", "tg", "th", "tk", "tl", "tr", "tt", "ug", "uk", "ur", "uz", "uzs",
    "vec", "vi", "vo", "wa", "wuu", "xh", "yo", "yue", "zh", "zu",
)
# fmt: on
"""The languages that can be told: codes of ISO 639, those of py3langid's model."""


def _check_language(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError(
            f"{code!r} is no language that can be told; expected a code such as 'en', or one of"
            f" {', '.join(LANGUAGES)}"
        )
    return code


def _check_installed(package: str, need: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ValueError(f"{need}, which is not installed: pip install 'llama-compat[{extra}]'")


JudgeFormatName = Literal["llama_guard", "shield_gemma", "gpt_oss_safeguard"]
"""How a model is asked that judges, and how it answers."""


class JudgeSettings(TemplateSettings):
    """A model of the template that is asked what it thinks of a text."""

    model: Annotated[str, Field(min_length=1)]
    """Its id in the template."""

    format: JudgeFormatName
    """How it is asked, and answers: `llama_guard`, `shield_gemma` or `gpt_oss_safeguard`."""

    policy: str | None = None
    """What is against the rules, in words; `llama_guard` has its own, the others need one."""

    @model_validator(mode="after")
    def _has_policy(self) -> Self:
        _check_policy(self.format, self.policy)
        return self


def _check_policy(format: str, policy: str | None) -> None:
    if policy is None and format != "llama_guard":
        raise ValueError(f"{format!r} judges by a 'policy': say what is against the rules")


PictureFormatName = Literal["llama_guard", "shield_gemma", "policy"]
"""How a model is asked that judges pictures, and how it answers."""


class PictureSettings(TemplateSettings):
    """A model of the template that is shown the pictures of a request, and of its reply."""

    model: Annotated[str, Field(min_length=1)]
    """Its id in the template."""

    format: PictureFormatName
    """How it is asked, and answers: `llama_guard` (4) and `shield_gemma` (2) in their own words;
    `policy` is for any model that sees."""

    policy: str | None = None
    """What is against the rules, in words; `llama_guard` has its own, the others need one."""

    max_count: Annotated[int, Field(ge=1)] = 32
    """So many pictures of one request are judged, and as many of what tools gave, and of its reply;
    of one with more, no further one can be told."""

    max_bytes: Annotated[int, Field(ge=1)] = 20 * 1024 * 1024
    """A picture that a request or a reply names by its URL may come to as many."""

    allow_private_addresses: bool = False
    """Fetch pictures from the server's own network too: only where every caller may see all of
    it."""

    @model_validator(mode="after")
    def _has_policy(self) -> Self:
        _check_policy(self.format, self.policy)
        return self


class ModerationSettings(TemplateSettings):
    """A model of the template that is asked by the moderations API of its vendor."""

    model: Annotated[str, Field(min_length=1)]
    """Its id in the template."""

    categories: tuple[str, ...] = ()
    """Which of the vendor's categories count; without any, whatever it flags."""


class HookSettings(TemplateSettings):
    """A service of one's own, or a vendor's, that is asked over HTTP."""

    url: Annotated[str, Field(pattern="^https?://[^/]+")]
    """It gets a POST of `{"texts": [...], "input_type": "request" or "response"}`, and answers
    `{"action": "NONE"}`, or `BLOCKED` or `GUARDRAIL_INTERVENED` where it found something: LiteLLM's
    Generic Guardrail API."""

    headers: dict[str, SecretStr] = {}
    """Sent with each request, such as a key."""


class TopicSettings(TemplateSettings):
    """Topics that nobody is to talk about, told by how near a text is to examples of them."""

    model: Annotated[str, Field(min_length=1)]
    """A model of the template that makes embeddings."""

    deny: Annotated[tuple[str, ...], Field(min_length=1)]
    """What each topic is about, or examples."""

    threshold: Annotated[float, Field(gt=0, le=1)] = 0.75
    """From so great a cosine on a text is about it; it depends on the model."""


class LanguageSettings(TemplateSettings):
    """In which languages texts may be."""

    allow: Annotated[
        tuple[Annotated[str, AfterValidator(_check_language)], ...], Field(min_length=1)
    ]
    """Their codes, as in `[en, de]` (ISO 639: two letters, or three where there are no two)."""

    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """So sure has the guess to be, of 1; what it is less sure of is in no language that is known,
    such as most code."""

    min_letters: Annotated[int, Field(ge=1)] = 20
    """A text with fewer letters is too short to tell, and goes by. They count as in UTF-8: a Latin
    one is one, a Chinese character three."""

    unknown: Literal["allow", "block"] = "allow"
    """What becomes of a text that is long enough and in no language that is known."""


class PresidioSettings(TemplateSettings):
    """Personal data, as Presidio finds it."""

    entities: tuple[Annotated[str, Field(pattern="^[A-Z][A-Z0-9_]{0,31}$")], ...] = ()
    """What is looked for, as Presidio calls it: `EMAIL_ADDRESS`, `US_SSN`, `PERSON`; without any,
    all that it knows in the language."""

    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] = "en"
    """Of the texts: the code by which Presidio and spaCy have it."""

    model: Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_]*$")] | None = None
    """An installed model of spaCy, such as `en_core_web_sm`. Names of persons, places and
    organizations take one; the rest is found by patterns, check digits and the words around."""

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.4
    """What Presidio is less sure of, of 1, is not meant."""

    @model_validator(mode="after")
    def _is_there(self) -> Self:
        _check_installed("presidio_analyzer", "personal data is found by Presidio", "presidio")
        if self.model is not None and find_spec(self.model) is None:
            raise ValueError(
                f"the model {self.model!r} of spaCy is not installed: python -m spacy download"
                f" {self.model}"
            )
        return self


class CheckSettings(TemplateSettings):
    """One check: what it looks through, what it looks for, and what it does then."""

    name: Annotated[str, AfterValidator(_check_name)]
    """What records, metrics and messages call it."""

    scan: Place | Literal["all"] | Annotated[tuple[Place, ...], Field(min_length=1)] = "all"
    """What it looks through: `input`, `output`, `tool_arguments`, `tool_results`, several of them,
    or `all`."""

    mode: Mode = "block"
    """`block` refuses the request, or ends the reply; `redact` puts a word such as `<EMAIL_1>` in
    the place of what was found; `monitor` only counts it."""

    order: int = 0
    """Checks with a lower one come first; of the same, in the order of the template."""

    on_error: Literal["block", "allow"] = "block"
    """What is done where the check itself fails."""

    restore: bool = False
    """With `redact`: what was hidden from a vendor is put back where its reply repeats the word."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10
    """How long one question to a model or a service may take, or one window of a text Presidio;
    after that the check has failed. Patterns take no time that has to be limited."""

    window: Annotated[int, Field(ge=100)] = 2000
    """Characters of a streamed reply that are asked about together, and are held back until there
    is an answer. Presidio has every text in such windows."""

    patterns: tuple[NamedSet, ...] = ()
    """Look for what these named sets describe: `api_keys`, `cards` and `ibans` (with their check
    digits), `emails`, `phone_numbers`."""

    expressions: Annotated[dict[str, str], AfterValidator(_check_expressions)] = {}
    """Look for these regular expressions (RE2's), by what they are called in place of a match. Each
    repetition needs an upper bound."""

    max_characters: Annotated[int, Field(ge=1)] | None = None
    """Look for prompts that are longer."""

    valid_json: bool = False
    """Look for replies whose text is no JSON. A stream is held back to its end."""

    presidio: PresidioSettings | None = None
    """Look for personal data by Presidio, in what is said."""

    language: LanguageSettings | None = None
    """Look for texts in other languages than these."""

    judge: JudgeSettings | None = None
    """Ask a model of the template."""

    images: PictureSettings | None = None
    """Show a model of the template the pictures that are asked about, that tools gave, or that a
    model draws."""

    moderations: ModerationSettings | None = None
    """Ask a vendor's moderations API."""

    topics: TopicSettings | None = None
    """Look for topics, by embeddings."""

    http: HookSettings | None = None
    """Ask a service."""

    @property
    def places(self) -> tuple[Place, ...]:
        """What it looks through."""
        if isinstance(self.scan, tuple):
            return self.scan
        return PLACES if self.scan == "all" else (self.scan,)

    @property
    def has_patterns(self) -> bool:
        """Whether it looks for patterns."""
        return bool(self.patterns or self.expressions)

    @property
    def is_asked(self) -> bool:
        """Whether it is asked about a text as a whole."""
        return not self.has_patterns and self.presidio is None and self.images is None

    @property
    def models(self) -> list[str]:
        """The models of the template that it asks."""
        asked = (self.judge, self.images, self.moderations, self.topics)
        return [each.model for each in asked if each is not None]

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        kinds = {
            "patterns": self.has_patterns,
            "max_characters": self.max_characters is not None,
            "valid_json": self.valid_json,
            "presidio": self.presidio is not None,
            "language": self.language is not None,
            "judge": self.judge is not None,
            "images": self.images is not None,
            "moderations": self.moderations is not None,
            "topics": self.topics is not None,
            "http": self.http is not None,
        }
        given = [name for name, is_given in kinds.items() if is_given]
        if len(given) != 1:
            raise ValueError(
                f"give one of {', '.join(map(repr, kinds))}, or 'expressions' with 'patterns'; got"
                f" {' and '.join(map(repr, given)) or 'none'}"
            )
        if self.mode == "redact" and not (self.has_patterns or self.presidio or self.images):
            raise ValueError(
                "only what patterns or Presidio find, and pictures, can be hidden: take 'block' or"
                " 'monitor'"
            )
        if self.images is not None and self.places == ("tool_arguments",):
            raise ValueError(
                "'images' is about what is seen, and tools are given no pictures: it needs 'scan:"
                " input', 'output' or 'tool_results'"
            )
        if self.images is not None and self.restore:
            raise ValueError("a picture that was hidden is not put back: leave out 'restore'")
        if self.valid_json and self.places != ("output",):
            raise ValueError("'valid_json' is about replies: it needs 'scan: output'")
        if self.max_characters is not None and self.places != ("input",):
            raise ValueError("'max_characters' is about prompts: it needs 'scan: input'")
        if self.has_patterns:
            _check_installed("re2", "patterns are looked for by RE2", "guardrails")
        if self.language is not None:
            _check_installed("py3langid", "languages are told by py3langid", "language")
        if self.restore and self.mode != "redact":
            raise ValueError("'restore' puts back what was hidden, which is what 'redact' does")
        return self
