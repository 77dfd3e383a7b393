"""What kind of error it is, whoever made it: by status, type, code and the vendors' wordings.

The table is read from the top; the first row that fits counts, and what is 500 or more and in no
row is a server's error: proxies in front of vendors have numbers of their own. Sources:
OpenAI's error codes (https://platform.openai.com/docs/guides/error-codes), Anthropic's
(https://platform.claude.com/docs/en/api/errors), google.rpc.Code, and the messages of vLLM,
llama.cpp, SGLang, Ollama, Mistral, Groq, Together, Fireworks, DeepSeek and Azure; Cloudflare's 5xx
(https://developers.cloudflare.com/support/troubleshooting/http-status-codes/); Amazon Bedrock's
exceptions (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Handling:
    """What an error of one class means for the request and for the target that gave it.

    Attributes:
        retries: the same target may be asked again.
        falls_back: another target may be, where the template's `fall_back_on` lists the class.
        blames_target: it counts against the target, which cools after some of them.
        cools_at_once: the next request would meet it too: the target cools after the first.
        heeds_retry_after: the vendor may have said when to come back.
        passes: it says nothing of what was asked, and may be over by itself in a while: who does
            not wait for a reply asks again later.
    """

    retries: bool = False
    falls_back: bool = True
    blames_target: bool = True
    cools_at_once: bool = False
    heeds_retry_after: bool = False
    passes: bool = False


class ErrorClass(StrEnum):
    """What can be done about an error depends on which of these it is."""

    context_length = "context_length"
    content_filter = "content_filter"
    quota = "quota"
    rate_limit = "rate_limit"
    authentication = "authentication"
    overloaded = "overloaded"
    timeout = "timeout"
    connection = "connection"
    not_found = "not_found"
    bad_request = "bad_request"
    server_error = "server_error"
    unsupported = "unsupported"
    """A provider here can't do what the request asks for, and has not sent it, so that another
    target is looked for (`APIError.was_sent`)."""
    other = "other"

    @property
    def handling(self) -> Handling:
        """What it means for the request and its target."""
        return _HANDLING[self]


_ITS_OWN_FAULT = Handling(falls_back=False, blames_target=False)
"""The request's: it would be the same wherever it is sent."""

_HANDLING = {
    ErrorClass.context_length: Handling(blames_target=False),
    ErrorClass.content_filter: Handling(blames_target=False),
    ErrorClass.quota: Handling(cools_at_once=True, heeds_retry_after=True),
    ErrorClass.rate_limit: Handling(retries=True, heeds_retry_after=True, passes=True),
    ErrorClass.authentication: Handling(cools_at_once=True),
    ErrorClass.overloaded: Handling(retries=True, heeds_retry_after=True, passes=True),
    ErrorClass.timeout: Handling(passes=True),
    ErrorClass.connection: Handling(retries=True, passes=True),
    ErrorClass.not_found: Handling(blames_target=False),
    ErrorClass.bad_request: _ITS_OWN_FAULT,
    ErrorClass.server_error: Handling(retries=True, heeds_retry_after=True, passes=True),
    ErrorClass.unsupported: _ITS_OWN_FAULT,
    ErrorClass.other: _ITS_OWN_FAULT,
}

FALLS_BACK = tuple(kind for kind, handling in _HANDLING.items() if handling.falls_back)
"""What a template may list in `fall_back_on`."""


@dataclass(frozen=True, slots=True)
class _Row:
    """An error is of the class if its code or type is among `words`, or its status among `statuses`
    and, where there are any, one of `wordings` in its message."""

    error_class: ErrorClass
    words: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    wordings: tuple[str, ...] = ()

    def fits(self, status: int, words: frozenset[str], message: str) -> bool:
        if words & self.words:
            return True
        if status not in self.statuses:
            return False
        return not self.wordings or any(wording in message for wording in self.wordings)


_ROWS = (
    _Row(
        ErrorClass.context_length,
        frozenset(
            {
                "context_length_exceeded",
                "exceed_context_size_error",
                "string_above_max_length",
                "model_context_window_exceeded",
            }
        ),
        frozenset({400, 413, 422, 500}),
        (
            "maximum context length",
            "context length exceeded",
            "context_length_exceeded",
            "exceeds the available context size",
            "exceeds the context",
            "exceed context limit",
            "context window",
            "maximum number of tokens allowed",
            "prompt is too long",
            "input is too long",
            "is longer than the model's context length",
            "exceeds model's maximum context",
            "exceeds the maximum number of tokens",
            "larger than the maximum context",
            "reduce the length of the messages",
            "too large for model with",
        ),
    ),
    _Row(
        ErrorClass.content_filter,
        frozenset(
            {"content_blocked", "content_filter", "content_policy_violation", "moderation_blocked"}
        ),
        frozenset({400, 403, 422}),
        ("content management policy", "content policy", "flagged by", "responsible ai"),
    ),
    _Row(
        ErrorClass.quota,
        frozenset(
            {
                "insufficient_quota",
                "quota_exceeded",
                "billing_error",
                "billing_hard_limit_reached",
                "servicequotaexceededexception",
            }
        ),
        frozenset({402}),
    ),
    _Row(
        ErrorClass.quota,
        statuses=frozenset({400, 403, 429}),
        wordings=(
            "exceeded your current quota",
            "insufficient balance",
            "credit balance is too low",
            "insufficient credits",
            "out of credits",
        ),
    ),
    _Row(
        ErrorClass.authentication,
        frozenset(
            {
                "upstream_authentication",
                "invalid_api_key",
                "authentication_error",
                "permission_error",
                "unauthenticated",
                "permission_denied",
                "authentication",
            }
        ),
        frozenset({401, 403}),
    ),
    _Row(
        ErrorClass.overloaded,
        frozenset(
            {
                "overloaded_error",
                "overloaded",
                "engine_overloaded",
                "unavailable",
                "service_unavailable",
                "modelnotreadyexception",
            }
        ),
        frozenset({498, 503, 529}),  # 498: Groq's flex tier has no room
    ),
    _Row(
        ErrorClass.rate_limit,
        frozenset(
            {
                "rate_limit_error",
                "rate_limit_exceeded",
                "resource_exhausted",
                "throttlingexception",
            }
        ),
        frozenset({429}),
    ),
    _Row(
        ErrorClass.timeout,
        frozenset({"timeout_error", "upstream_timeout", "deadline_exceeded"}),
        frozenset({408, 504, 524, 598}),  # the last two: a proxy's, which has sent it on
    ),
    _Row(
        ErrorClass.connection,
        frozenset({"upstream_connection_lost", "upstream_connection_failed"}),
        frozenset({521, 522, 523, 525, 526, 530, 599}),  # a proxy's, which has not got through
    ),
    _Row(ErrorClass.not_found, frozenset({"model_not_found", "not_found_error"}), frozenset({404})),
    _Row(
        ErrorClass.bad_request,
        statuses=frozenset({400, 405, 409, 413, 415, 422}),
    ),
    # 424: Text Generation Inference, whose model failed. 499: a proxy of the vendor's, or Google,
    # takes somebody to have left who has not.
    _Row(ErrorClass.server_error, statuses=frozenset({424, 499})),
)


def classify(status: int, type: str | None, code: str | None, message: str) -> ErrorClass:
    """The class of an error with this HTTP status, OpenAI's `type` and `code`, and message."""
    words = frozenset(word.lower() for word in (type, code) if word)
    lowered = message[:4096].lower()
    for row in _ROWS:
        if row.fits(status, words, lowered):
            return row.error_class
    return ErrorClass.server_error if status >= 500 else ErrorClass.other


OPENAI_CODES = {
    ErrorClass.context_length: "context_length_exceeded",
    ErrorClass.content_filter: "content_filter",
    ErrorClass.quota: "insufficient_quota",
    ErrorClass.rate_limit: "rate_limit_exceeded",
}
"""OpenAI's `code` for the classes that have one: clients decide by it, whatever vendor it was."""
