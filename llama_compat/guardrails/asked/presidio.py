"""Personal data found by Presidio (https://github.com/data-privacy-stack/presidio): entities of a
text, by patterns with check digits and words around them, and by a model of spaCy where there is
one.
"""

from __future__ import annotations

import logging
from functools import cache
from threading import Lock
from typing import Any

from msgspec import Struct

from llama_compat.guardrails.settings import PresidioSettings


class Entity(Struct, frozen=True):
    """Something that was found.

    Attributes:
        start, end: where in the text.
        kind: what it is, as Presidio calls it: `EMAIL_ADDRESS`.
    """

    start: int
    end: int
    kind: str


class UnknownEntities(Exception):
    """Presidio finds none of these in this language, or needs a model; the message says so."""


def entities_in(text: str, settings: PresidioSettings) -> list[Entity]:
    """What is found in a text, in its order; of what begins at one place the longest first, and of
    what is one text the likeliest.

    It takes some 30 microseconds a character without a model: nothing for an event loop.
    """
    return analyzer(settings).found(text)


class Analyzer:
    """Finds the entities that one check looks for.

    Args:
        settings: of it.

    Raises:
        ModuleNotFoundError: Presidio is not installed.
        UnknownEntities: there are none such.
    """

    def __init__(self, settings: PresidioSettings) -> None:
        import tldextract.tldextract
        from presidio_analyzer import AnalyzerEngine

        # Which recognisers there are for other languages is nothing to warn of.
        logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
        # An address is held against the list of suffixes that the package brings: nothing is
        # fetched for a request.
        tldextract.tldextract.TLD_EXTRACTOR.suffix_list_urls = ()
        self._settings = settings
        self._engine = AnalyzerEngine(
            nlp_engine=_words(settings), supported_languages=[settings.language]
        )
        self._lock = Lock()  # spaCy's pipelines and Presidio's caches are one thread's at a time
        known = {
            kind
            for each in self._engine.get_recognizers(settings.language)
            if settings.model or each.name != "SpacyRecognizer"
            for kind in each.supported_entities
        }
        if unknown := sorted(set(settings.entities) - known):
            hint = "" if settings.model else " without a 'model' of spaCy"
            raise UnknownEntities(
                f"Presidio finds no {', '.join(unknown)} in '{settings.language}'{hint}, but"
                f" {', '.join(sorted(known))}"
            )

    def found(self, text: str) -> list[Entity]:
        """What is found in a text."""
        settings = self._settings
        with self._lock:
            found = self._engine.analyze(
                text,
                settings.language,
                entities=list(settings.entities) or None,
                score_threshold=settings.threshold,
            )
        found.sort(key=lambda each: (each.start, -each.end, -each.score))
        return [Entity(each.start, each.end, each.entity_type) for each in found]


@cache
def analyzer(settings: PresidioSettings) -> Analyzer:
    """The one for all checks with these settings; the first time that takes seconds.

    Raises:
        ModuleNotFoundError, UnknownEntities: as `Analyzer`.
        OSError: spaCy can't read its model.
    """
    return Analyzer(settings)


def _words(settings: PresidioSettings) -> Any:
    """What takes a text apart: a model, or the plain words of the language."""
    import spacy
    from presidio_analyzer.nlp_engine import SpacyNlpEngine
    from spacy.language import Language
    from spacy.tokens import Doc

    if settings.model is not None:
        return SpacyNlpEngine([{"lang_code": settings.language, "model_name": settings.model}])

    def as_they_are(doc: Doc) -> Doc:
        """Words such as `card` near a number count, which Presidio knows by their lemmas."""
        for token in doc:
            token.lemma_ = token.lower_
        return doc

    Language.component("llama_compat_words", func=as_they_are)

    class PlainWords(SpacyNlpEngine):  # type: ignore[misc]
        """A pipeline of spaCy that no model is needed for."""

        def load(self) -> None:
            words = spacy.blank(settings.language)
            words.add_pipe("llama_compat_words")
            self.nlp = {settings.language: words}

    return PlainWords([{"lang_code": settings.language, "model_name": "none"}])
