"""What differs between the batch APIs of those that follow OpenAI's: data, a row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CHAT = "/v1/chat/completions"

_CHAT_ALONE: Mapping[str, str] = {"/chat/completions": CHAT}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """What is particular about one of them.

    Attributes:
        root: where its paths begin, from the host on; empty for the base URL.
        endpoints: what lines may ask, by the path of a single request, as orders call it.
        max_lines, max_bytes: of one input.
        files: where files are: sent there, and below it by their ids.
        upload: where they are sent instead, if not there.
        purpose: what the input is said to be for.
        form: what else is said of it.
        jobs: where batches are.
        is_mistrals: whether an order is made, and shown, as Mistral does it.
        has_metadata: whether an order can be told what it is called here; otherwise it is known by
            its input.
        lines_say_where: whether a line has a `method` and a `url` besides.
    """

    root: str = ""
    endpoints: Mapping[str, str] = field(default_factory=lambda: _CHAT_ALONE)
    max_lines: int = 50_000
    max_bytes: int = 200_000_000
    files: str = "/files"
    upload: str | None = None
    purpose: str = "batch"
    form: Mapping[str, str] = field(default_factory=dict)
    jobs: str = "/batches"
    is_mistrals: bool = False
    has_metadata: bool = True
    lines_say_where: bool = True


OPENAIS = BatchRow(
    # openai 3.52.0, types/batch_create_params.py (2026-11-23): 50,000 requests, 200 MB, 24h
    endpoints={
        **_CHAT_ALONE,
        "/completions": "/v1/completions",
        "/embeddings": "/v1/embeddings",
        "/responses": "/v1/responses",
    },
)

AZURES = BatchRow(
    # MicrosoftDocs/azure-ai-docs, includes/batch/batch-rest.md (2026-11-23): one deployment a file,
    # of the type Global-Batch or Data Zone Batch; 100,000 requests, 200 MB.
    root="/openai/v1",
    endpoints={**_CHAT_ALONE, "/responses": "/v1/responses", "/embeddings": "/v1/embeddings"},
    max_lines=100_000,
)

GROQS = BatchRow(
    # groq-python, types/batch_create_params.py: chats alone, 100 MB; console.groq.com/docs/batch:
    # 50,000 lines (2026-11-23)
    max_bytes=100_000_000,
)

MISTRALS = BatchRow(
    # https://docs.mistral.ai/capabilities/batch and client-python's models/batchjob.py
    # (2026-11-23): one model a job, up to a million requests; files of 512 MB
    endpoints={**_CHAT_ALONE, "/embeddings": "/v1/embeddings"},
    max_lines=100_000,
    jobs="/batch/jobs",
    is_mistrals=True,
    lines_say_where=False,
)

TOGETHERS = BatchRow(
    # https://docs.together.ai/docs/inference/batch/overview and together-python's types/batch.py
    # (2026-11-23): 50,000 requests, 100 MB
    endpoints={**_CHAT_ALONE, "/completions": "/v1/completions"},
    max_bytes=100_000_000,
    upload="/files/upload",
    purpose="batch-api",
    form={"file_name": "lines.jsonl", "file_type": "jsonl"},
    has_metadata=False,
    lines_say_where=False,
)
