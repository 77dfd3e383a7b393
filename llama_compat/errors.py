"""The one place where an error gets its status and its body.

Whatever goes wrong is raised as an `APIError` where it is known, and rendered here in OpenAI's
shape (https://platform.openai.com/docs/guides/error-codes): `{"error": {"message", "type", "param",
"code"}}`. The constructors below are the errors that this software answers with, but for those of
`llama_compat.connection_errors`; their statuses, types and codes are the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from llama_compat.error_classes import ErrorClass, classify
from llama_compat.wire.json_fields import to_raw
from llama_compat.wire.retry_after import read_retry_after, retry_after

TYPE_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    424: "server_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    498: "overloaded_error",
    499: "server_error",
    500: "server_error",
    502: "upstream_error",
    503: "service_unavailable_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class APIError(Exception):
    """An error that the client is told about.

    Args:
        status: HTTP status; in a stream that has begun it is only part of the log line.
        message: what happened, where, and what to do; shown to the caller, so never a secret.
        type: OpenAI's `error.type`; by default the one that goes with `status`.
        param: the request's field that is at fault.
        code: OpenAI's `error.code`, a word for programs.
        headers: more headers for the answer, such as `retry-after`.

    Attributes:
        vendor_body: the dialect of the vendor's own words for it (empty until a relay says which)
            and the words, where it is a vendor's error: a client that speaks the same gets them
            as they are.
        model: the model of this machine that `message` names in quotes, as the template does, which
            may be a path: see `about`.
        was_sent: whether the request was sent anywhere. Where it was refused before, here, that
            says nothing of a target, and another is looked for whatever the template lists.
        is_last: whether nobody else may be asked in its place, as something has been done already
            that must not be done twice.
    """

    was_sent = True
    is_last = False

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or TYPE_BY_STATUS.get(
            status, "invalid_request_error" if status < 500 else "server_error"
        )
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        self.vendor_body: tuple[str, bytes] | None = None
        self.model: str | None = None

    def about(self, model: str) -> Self:
        """Note that `message` names `model`, which its client knows by another name."""
        self.model = model
        return self

    def said_of(self, name: str) -> APIError:
        """The same of its model by the name that a client asked for. Another error, since several
        requests, of which each has its own name for the model, may have failed by one."""
        if self.model is None:
            return self
        message = self.message.replace(f"'{self.model}'", f"'{name}'")
        said = type(self).__new__(type(self), message)
        said.__dict__.update(self.__dict__)
        said.message, said.headers, said.model = message, dict(self.headers), None
        return said

    def let_go(self) -> None:
        """Let go of the frames that it and what caused it came through.

        For whoever keeps it: those frames hold all of the request, and the request the error, so
        that its body would stay until the collector looks for cycles, which has no idea of size.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__

    @property
    def error_class(self) -> ErrorClass:
        """What kind of error it is."""
        return classify(self.status, self.type, self.code, self.message)

    @property
    def blames_target(self) -> bool:
        """Whether it counts against the target that gave it."""
        return self.was_sent and self.error_class.handling.blames_target

    @property
    def retry_after(self) -> float | None:
        """In how many seconds to come back; None where nobody said."""
        return read_retry_after(self.headers)

    @property
    def heeded_wait(self) -> float | None:
        """The same, for whoever asks the target again: of an error of a class of which its vendor
        may say so, and None of all others."""
        return self.retry_after if self.error_class.handling.heeds_retry_after else None

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def json(self) -> bytes:
        """`body` as UTF-8 JSON."""
        return bytes(to_raw(self.body()))


class UnsupportedHere(APIError):
    """A provider here can't do what the request asks for, and has sent nothing: another may."""

    was_sent = False

    @property
    def error_class(self) -> ErrorClass:
        """What kind of error it is."""
        return ErrorClass.unsupported


class StaleConnection(APIError):
    """502: a connection that was kept from an earlier request was closed under this one, at once
    and without an answer.

    The vendor may have read the request, so sending it once more is an attempt like any other. But
    that it closes what is idle says nothing of how it is: it is not blamed, and need not be given
    time.
    """

    def __init__(self, provider: str, what: str) -> None:
        super().__init__(
            502,
            f"Provider '{provider}': {what}",
            type="upstream_error",
            code="upstream_connection_failed",
        )

    @property
    def blames_target(self) -> bool:
        """Whether it counts against the target that gave it."""
        return False


@contextmanager
def told_by_name(name: str) -> Iterator[None]:
    """What goes wrong with a model of this machine meanwhile is said of it by `name`, which the
    client asked for.

    Raises:
        APIError: what was raised, as `APIError.said_of` has it.
    """
    try:
        yield
    except APIError as error:
        said = error.said_of(name)
        if said is error:
            raise
        raise said from error


# What is wrong with a request ---------------------------------------------------------------------


def invalid_parameter(param: str, message: str, code: str | None = "invalid_value") -> APIError:
    """400: the field `param` has a value that it can't have."""
    return APIError(400, message, param=param, code=code)


def unsupported_content(param: str, message: str) -> UnsupportedHere:
    """400: what stands at `param` can't be taken here; another may take it."""
    return UnsupportedHere(400, message, param=param, code="unsupported_content")


def missing_parameter(param: str) -> APIError:
    """400: the field `param` is required."""
    return APIError(
        400,
        f"Missing required parameter: '{param}'.",
        param=param,
        code="missing_required_parameter",
    )


def unsupported_parameter(param: str, provider: str, why: str = "") -> APIError:
    """400: the provider can't honour the field `param` (rule: never silent)."""
    return UnsupportedHere(
        400,
        f"Unsupported parameter: '{param}' is not supported by provider '{provider}'"
        f"{': ' + why if why else ''}. Leave it out, or set `unsupported: drop` for this provider"
        " in the template.",
        param=param,
        code="unsupported_parameter",
    )


def unsupported_whoever_answers(param: str, why: str) -> APIError:
    """400: nobody could honour the field `param`, for the reason `why`, which is a sentence."""
    return UnsupportedHere(
        400,
        f"Unsupported parameter: '{param}': {why}. Leave it out.",
        param=param,
        code="unsupported_parameter",
    )


def unsupported_capability(
    provider: str, capability: str, instead: str = "a model of another provider"
) -> APIError:
    """400: the provider has no such capability at all, or not with this model; what to choose
    `instead`."""
    return UnsupportedHere(
        400,
        f"Provider '{provider}' does not support {capability}. Choose {instead}.",
        code="unsupported_capability",
    )


def blocked(check: str) -> APIError:
    """400: a guardrail of the template stopped the request, or a reply that has no other end."""
    return APIError(
        400,
        f"Blocked by this server's guardrail '{check}'. Leave out what it is about, or ask whoever"
        " runs the server.",
        code="content_filter",
    )


def image_in_reply(provider: str) -> APIError:
    """400: the model said more than the client's API has words for."""
    return UnsupportedHere(
        400,
        f"Provider '{provider}': the model replied with an image, for which this API has no place."
        " Ask in OpenAI's chat completions or in Gemini's API, or a model that writes text.",
        code="unsupported_capability",
    )


def not_offered(provider: str, what: str) -> APIError:
    """404: the route is there, but not for this provider's models."""
    return UnsupportedHere(404, f"Provider '{provider}' has no way of {what}.", code="not_offered")


def context_length_exceeded(context_length: int, prompt_tokens: int, max_tokens: int) -> APIError:
    """400: the prompt and what may be generated do not fit; with no `prompt_tokens`, that was seen
    before they were counted."""
    limit = f"This model's maximum context length is {context_length} tokens"
    both = (
        f"{limit}, but {prompt_tokens} in the prompt and {max_tokens} for the completion make"
        f" {prompt_tokens + max_tokens}. Shorten the prompt or lower max_tokens."
    )
    alone = (
        f"{limit}, and {max_tokens} for the completion are more by themselves. Lower max_tokens."
    )
    return APIError(
        400,
        both if prompt_tokens else alone,
        param="messages" if prompt_tokens >= context_length else "max_tokens",
        code="context_length_exceeded",
    )


def prompt_too_long(context_length: int, prompt_tokens: int, param: str) -> APIError:
    """400: the prompt alone does not fit, which was seen before all of its tokens were counted."""
    return APIError(
        400,
        f"This model's maximum context length is {context_length} tokens, but the prompt has more"
        f" than that: {prompt_tokens} at the least. Shorten it.",
        param=param,
        code="context_length_exceeded",
    )


def model_not_found(model: str, available: Sequence[str] = ()) -> APIError:
    """404: no model of that name is offered."""
    hint = f" Available: {', '.join(available[:8])}{', ...' if len(available) > 8 else ''}."
    shown = model if len(model) <= 200 else f"{model[:200]}..."
    return APIError(
        404,
        f"The model '{shown}' does not exist.{hint if available else ''}",
        type="invalid_request_error",
        param="model",
        code="model_not_found",
    )


def model_not_allowed(model: str) -> APIError:
    """403: the key that came with the request does not open the model."""
    return APIError(
        403,
        f"This API key does not open the model '{model[:200]}'. The list of models has those that"
        " it opens.",
        param="model",
        code="model_not_allowed",
    )


def tool_not_allowed(tool: str) -> APIError:
    """The key may not have the server run this tool."""
    return APIError(
        403,
        f"This key may not use the tool '{tool}'. Leave it out, or have it added to the key's"
        " `tools`.",
        param="tools",
        code="tool_not_allowed",
    )


def unknown_tool_server(label: str) -> APIError:
    """No MCP server is called so, and none may be named by its URL."""
    return APIError(
        400,
        f"There is no MCP server '{label[:80]}' here. Name one of the template's by its label; one"
        " of your own is connected to where the template has `mcp.from_requests`, by its URL.",
        param="tools",
        code="unknown_tool_server",
    )


def too_many_choices(choices: int, limit: int) -> APIError:
    """400: the request wants more replies than the template's `server.max_choices`."""
    return APIError(
        400,
        f"This request asks for {choices} replies at once, the choices of all its prompts counted,"
        f" but this server makes {limit} for one request. Send several requests, or raise"
        " `max_choices` in its template.",
        param="n",
        code="too_many_choices",
    )


def nested_too_deeply(param: str, limit: int) -> APIError:
    """400: arrays and objects in one another, more than `limit` of them, in the field `param`."""
    return invalid_parameter(
        param,
        f"Invalid '{param}': arrays and objects are nested deeper than {limit} levels, counted from"
        " the request's own braces. Make it flatter.",
        "nested_too_deeply",
    )


def request_too_large(limit: int) -> APIError:
    """413: the body is over the template's `server.max_body_bytes`."""
    return APIError(
        413,
        f"The request body is larger than the {limit} bytes that this server accepts. Send less, or"
        " raise `max_body_bytes` in its template.",
        code="request_too_large",
    )


def invalid_api_key() -> APIError:
    """401: the server has `api_keys` and the request brought none of them."""
    return APIError(
        401,
        "Incorrect or missing API key. Send one of this server's keys as"
        " 'Authorization: Bearer KEY'.",
        type="invalid_request_error",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def team_not_found(team: str) -> APIError:
    """403: the key that came with the request is of a team that the template has not."""
    return APIError(
        403,
        f"This API key is of the team '{team}', which this server's template does not have (any"
        " more), so that nobody knows what the team may use. Whoever runs this server can add the"
        " team to the template, or give the key another.",
        code="team_not_found",
    )


# What is wrong behind us --------------------------------------------------------------------------


def upstream_error(
    provider: str, what: str, *, status: int = 502, code: str = "upstream_error"
) -> APIError:
    """502 unless told otherwise: the provider's endpoint failed or made no sense."""
    return APIError(status, f"Provider '{provider}': {what}", type="upstream_error", code=code)


def internal_error() -> APIError:
    """500 for an exception that nobody expected; the details are in the log alone."""
    return APIError(
        500,
        "The server had an error while processing the request; its log has the details.",
        code="internal_error",
    )


def targets_drained(targets: Sequence[str]) -> APIError:
    """503: whoever runs the server has drained all `targets` that could answer."""
    error = APIError(
        503,
        f"Nothing is sent to {', '.join(targets)} at the moment: whoever runs this server has"
        " drained it. Ask again later, or for another model.",
        code="targets_drained",
        headers=retry_after(5),
    )
    error.was_sent = False
    return error


def shutting_down() -> APIError:
    """503: the process is ending and this request did not finish in time."""
    return APIError(
        503,
        "The server is shutting down. Retry against another instance, or later.",
        code="server_shutting_down",
        headers=retry_after(5),
    )
