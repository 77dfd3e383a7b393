"""What transformers makes of a folder's tokenizer and settings, and that kept beside the model.

Importing transformers takes as long as all else that a start does. Where the weights are kept too,
as those of 8 bits are, the next start does without it; where an engine computes meanwhile, it is
kept for its own sake, as to read it holds that up. It is read anew when the model's files, this
code or transformers have changed, and when what was kept is damaged.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tokenizers import Tokenizer

from providers.local.models.programs import run_python
from providers.local.own_code import digest_of
from providers.local.threads.giving_way import computed_lately
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.starting.kept_tokenizer import KeptTokenizer
from providers.local.torch_engine.starting.kept_weights import (
    KeptWeights,
    kept_beside,
    likely_weights,
)

log = logging.getLogger(__name__)

_LARGE = 2**20
"""Bytes of a tokenizer's file, that of some 15,000 tokens: all would wait for it for a tenth of a
second. Another process is no gain for a smaller one: it takes seconds to import transformers."""


@dataclass(frozen=True)
class ReadTokenizer:
    """A fast tokenizer of transformers, as far as it is used here.

    Attributes:
        backend_tokenizer: of the `tokenizers` library.
        chat_template: its template, or several by name; None if it has none.
        with_tools, without_tools: the one that is taken for a conversation.
        bos_token_id: its beginning-of-text token.
        eos_token_id: its end-of-text token.
        special_tokens_map: how its special tokens are written, by what they are for.
    """

    backend_tokenizer: Tokenizer = field(compare=False)
    chat_template: str | Mapping[str, str] | None
    with_tools: str | None
    without_tools: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    special_tokens_map: Mapping[str, Any]

    @classmethod
    def of(cls, tokenizer: Any) -> ReadTokenizer:
        """That of `AutoTokenizer`, which is a fast one."""
        source = tokenizer.chat_template or None
        # Which of several it is, transformers says.
        with_tools = tokenizer.get_chat_template(tools=[{}]) if source else None
        return cls(
            tokenizer.backend_tokenizer,
            source,
            with_tools,
            _without_tools(tokenizer, source),
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            dict(tokenizer.special_tokens_map),
        )

    def get_chat_template(self, tools: Any = None) -> str:
        """The template of a conversation.

        Raises:
            ValueError: it has none for one without tools.
        """
        found = self.without_tools if tools is None else self.with_tools
        if found is None:
            raise ValueError("its chat templates are for conversations with tools alone")
        return found


def _without_tools(tokenizer: Any, source: Any) -> str | None:
    if not source:
        return None
    try:
        found: str = tokenizer.get_chat_template(tools=None)
    except ValueError:
        return None  # it has several, and none is the default
    return found


@dataclass(frozen=True)
class FolderReading:
    """What is read of a folder before its weights.

    Attributes:
        tokenizer: its own.
        end_tokens: those that its settings say end a reply.
        positions: the longest context, if its config says so.
        is_multimodal: whether it was made for more than text.
        unbatched: what keeps it from running in batches; None if nothing does.
    """

    tokenizer: ReadTokenizer
    end_tokens: tuple[int, ...]
    positions: int | None
    is_multimodal: bool
    unbatched: str | None


def _file_of(module: str) -> str:
    found = find_spec(f"providers.local.torch_engine.{module}")
    assert found is not None
    assert found.origin is not None
    return found.origin


_CODE = (
    *("loading.architectures", "media.families", "model.rope", "model.torch_step"),
    "starting.kept_tokenizer",
)
_MODULES = frozenset((__file__, *map(_file_of, _CODE)))
"""The code that says what is in a reading; it is not imported for one that is kept."""

_TOKENIZER = tuple(each.name for each in fields(ReadTokenizer) if each.name != "backend_tokenizer")
_OTHERS = tuple(each.name for each in fields(FolderReading) if each.name != "tokenizer")


def read_folder(folder: Path) -> FolderReading | None:
    """What transformers reads of the model in `folder`; None if it has no fast tokenizer.

    Raises:
        Exception: of a damaged file, whatever its reader stumbles over.
    """
    from transformers import (
        AutoConfig,
        AutoTokenizer,
        GenerationConfig,
    )
    from transformers.utils import logging as transformers_logging

    from providers.local.torch_engine.loading import architectures
    from providers.local.torch_engine.media import families

    transformers_logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.chat_template:
        tokenizer.chat_template = _template_beside(folder)
    architecture = AutoConfig.from_pretrained(folder, local_files_only=True)
    generation = None
    if (folder / "generation_config.json").exists():
        generation = GenerationConfig.from_pretrained(folder, local_files_only=True)
    if not tokenizer.is_fast:
        return None
    text = architecture.get_text_config()
    ends = (
        token_id
        for source in (generation, architecture, text, tokenizer)
        for token_id in _as_list(getattr(source, "eos_token_id", None))
    )
    return FolderReading(
        ReadTokenizer.of(tokenizer),
        tuple(dict.fromkeys(ends)),
        getattr(text, "max_position_embeddings", None),
        families.multimodal_class(architecture) is not None,
        architectures.why_not(architecture),
    )


def _template_beside(folder: Path) -> str | None:
    """The chat template of a model that takes media, where an older folder has it for what
    prepares these alone."""
    file = folder / "chat_template.json"
    if not file.is_file():
        return None
    found = json.loads(file.read_text("utf-8")).get("chat_template")
    return found if isinstance(found, str) else None


def _as_list(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


class _Kept(msgspec.Struct, frozen=True):
    """What is kept of a reading.

    Attributes:
        source: what it was made of; see `source_of`.
        backend: the tokenizer of the `tokenizers` library.
        tokenizer: the other members of `ReadTokenizer`.
        others: those of `FolderReading` but the tokenizer.
    """

    source: str
    backend: KeptTokenizer
    tokenizer: dict[str, Any]
    others: dict[str, Any]


def kept_reading(folder: Path) -> FolderReading | None:
    """What was read of the model in `folder`; None if it isn't kept, or is of another state."""
    try:
        text = _file_in(folder).read_bytes()
        total, _, body = text.partition(b"\n")
        if total != _sum(body):
            return None
        found = msgspec.json.decode(body, type=_Kept)
        if found.source != source_of(folder, _MODULES):
            return None
        tokenizer = ReadTokenizer(found.backend.made(), **found.tokenizer)
        end_tokens = tuple(found.others.pop("end_tokens"))
        return FolderReading(tokenizer=tokenizer, end_tokens=end_tokens, **found.others)
    except Exception:  # of a damaged file, whatever its reader stumbles over
        return None


def read_and_keep(folder: str) -> None:
    """Read the model in `folder` and keep what was read: for a process of its own."""
    read = read_folder(Path(folder))
    if read is not None:
        keep_reading(Path(folder), read)


def _reading_of(folder: Path) -> FolderReading | None:
    """What is kept of the model in `folder`.

    Where it isn't, an engine computes, and the tokenizer is a large one, another process reads it:
    transformers takes it apart in one step, which keeps all of this process waiting.
    """
    kept = kept_reading(folder)
    if kept is not None or not computed_lately():
        return kept
    if not _has_large_tokenizer(folder) or not _can_keep(folder):
        return None
    failure = run_python(f"{__name__}:{read_and_keep.__name__}", {"folder": str(folder)}, _nothing)
    if failure is not None:
        log.info("%s is read in this process, as in another one %s", folder, failure)
        return None
    return kept_reading(folder)


def _has_large_tokenizer(folder: Path) -> bool:
    try:
        return (folder / "tokenizer.json").stat().st_size > _LARGE
    except OSError:
        return False


def _can_keep(folder: Path) -> bool:
    """Whether what is read of the folder could be kept, or each load would read it twice."""
    place = _file_in(folder).parent
    try:
        place.mkdir(exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK)


def _nothing() -> None:
    """Nothing is to be done while a process lasts; it ends with this one."""


class Aside(NamedTuple):
    """What is read of a folder while something else is done, such as to import torch.

    Attributes:
        reading: what was read of it before its weights.
        weights: reads those that are kept beside it, if there are any that are likely.
    """

    reading: Future[FolderReading | None]
    weights: KeptWeights | None


@contextmanager
def read_aside(folder: Path, config: TorchConfig) -> Iterator[Aside]:
    """Read what is kept of a folder, in a thread: nearly all of it is to take a tokenizer apart and
    to read numbers, in which Python has no part."""
    with ThreadPoolExecutor(1, thread_name_prefix="reading") as thread, ExitStack() as ends:
        reading = thread.submit(_reading_of, folder)
        weights = likely_weights(folder, config)
        if weights is not None:
            weights.begin(thread)
            ends.callback(weights.close)
        yield Aside(reading, weights)


def keep_reading(folder: Path, reading: FolderReading) -> None:
    """Keep what was read of the model in `folder`; where that can't be written, it isn't kept."""
    file = _file_in(folder)
    unfinished = file.with_suffix(".unfinished")
    try:
        kept = _Kept(
            source=source_of(folder, _MODULES),
            backend=KeptTokenizer.of(reading.tokenizer.backend_tokenizer),
            tokenizer={name: getattr(reading.tokenizer, name) for name in _TOKENIZER},
            others={name: getattr(reading, name) for name in _OTHERS},
        )
        body = msgspec.json.encode(kept)
        file.parent.mkdir(exist_ok=True)
        unfinished.write_bytes(_sum(body) + b"\n" + body)
        # Whole or not at all; where two write at once, the sum tells.
        unfinished.replace(file)
    except Exception as error:  # of parts in Python as well, which a tokenizer may have
        log.info("what was read of %s can't be kept: %s", folder, error)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def source_of(folder: Path, modules: Collection[str]) -> str:
    """What something is made of that is kept beside a model: its files, and the code.

    Args:
        folder: the model's.
        modules: the files of the code.
    """
    status = {file.name: file.stat() for file in folder.glob("*") if file.is_file()}
    files = sorted((name, each.st_size, each.st_mtime_ns) for name, each in status.items())
    return json.dumps([files, digest_of(map(Path, modules)), version("transformers")])


def _file_in(folder: Path) -> Path:
    return kept_beside(folder, "reading.json")


def _sum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
