"""A request held against what its provider and its model can honour, in any client API."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Protocol, cast

from msgspec import structs

from llama_compat.dialects.base import (
    CHECKED_ARGUMENTS,
    CITED_DOCUMENTS,
    EMBEDDING_PURPOSE,
    HOSTED_SETTING,
    HOSTED_TOOLS,
    TOOL_GRAMMAR,
    EmbeddingTranslation,
    Kind,
    RerankTranslation,
    TokenCountTranslation,
    Translation,
)
from llama_compat.dialects.sampling import OF_CHATS_ALONE
from llama_compat.dialects.stop_lists import StopBound
from llama_compat.errors import nested_too_deeply, unsupported_parameter
from llama_compat.exchange import Call, Target
from llama_compat.fitting.fit import (
    WISHES,
    Fit,
    Fitted,
    fit_members,
    fit_messages,
    fit_request,
    remove,
)
from llama_compat.fitting.hints import HintPlaces, hints_said, without_hints
from llama_compat.fitting.placeless import without_placeless
from llama_compat.hosted.asked.named import MEMBERS
from llama_compat.hosted.toolbox import HostedToolbox
from llama_compat.hosted.vocabulary import GOOGLES_TOOLS, WEB_SEARCH, WebSearchTool, kind_of
from llama_compat.tools.names import NameForm
from llama_compat.types import ChatCompletionRequest, CompletionRequest
from llama_compat.wire.json_depth import MAX_DEPTH, too_deep
from llama_compat.wire.json_fields import unicode_from_raw

GenerationRequest = ChatCompletionRequest | CompletionRequest


class Settings(Protocol):
    """What is needed of a provider's settings."""

    @property
    def unsupported(self) -> str | None:
        """What to do with a parameter that can't be honoured: `refuse`, `drop` or `adapt`; None
        is `adapt`."""
        ...


class VocabularyProvider(Protocol):
    """What is needed of a provider that answers in the vocabulary.

    Attributes:
        id: as the template calls it.
        pays_each_choice: whether a prompt is read, and paid for, once for each of its choices.
        hint_places: what hints its API has a place for (`llama_compat.fitting.hints`).
    """

    id: str
    pays_each_choice: bool
    hint_places: HintPlaces

    def placeless_in(self, request: ChatCompletionRequest) -> Set[str]:
        """What its API has no place for in messages and tools, where it is asked for `request`
        (`llama_compat.fitting.placeless`)."""
        ...

    @property
    def config(self) -> Settings:
        """Its settings."""
        ...

    @property
    def tool_names(self) -> NameForm | None:
        """The names that its vendor takes for tools; None where it takes any."""
        ...

    @property
    def member_names(self) -> NameForm | None:
        """The same for members of their arguments."""
        ...

    @property
    def parameters(self) -> frozenset[str]:
        """OpenAI's names of the parameters of chats and completions that it honours."""
        ...

    @property
    def embedding_parameters(self) -> frozenset[str]:
        """The same of a request for embeddings."""
        ...

    @property
    def rerank_parameters(self) -> frozenset[str]:
        """The same of a request to rank documents."""
        ...

    def unsupported_values(self, request: GenerationRequest) -> Mapping[str, str]:
        """Fields of `request` that it honours, but not with this value: their names, and why."""
        ...

    def stop_bound(self, model: str) -> StopBound:
        """Which stop strings it takes for `model`, by its own name."""
        ...

    def searches(self, tool: WebSearchTool, request: ChatCompletionRequest) -> bool:
        """Whether it searches the web itself for `request`, as `tool` says."""
        ...


_PARAMETERS: Mapping[Kind, str] = {
    "chat": "parameters",
    "completion": "parameters",
    "embedding": "embedding_parameters",
    "rerank": "rerank_parameters",
}
"""What a provider honours, by what the call comes down to."""


def check(provider: VocabularyProvider, call: Call, target: Target) -> None:
    """See whether a call can be answered, as far as that is known before its model is there.

    Raises:
        APIError: 400 for what can't be honoured and is not to be left out, or what is malformed.
    """
    if call.operation.kind == "token_count":
        parsed_to_count(provider, call, target)
    else:
        honoured(provider, call, target)


def honoured(
    provider: VocabularyProvider, call: Call, target: Target
) -> tuple[Translation | EmbeddingTranslation | TokenCountTranslation | RerankTranslation, Fitted]:
    """The request as the provider and its model take it, and what became of the rest.

    Raises:
        APIError: 400 for what can't be honoured and is not to be left out, or what is malformed.
    """
    operation, body = call.operation, decoded(call)
    honoured: frozenset[str] = getattr(provider, _PARAMETERS[operation.kind])
    asked, usual, mode = operation.parameters(body), operation.usual(body), _mode(provider)
    hints = hints_said(body, operation.hints(body))
    generates = operation.kind in ("chat", "completion")
    fit = target.fit if generates else None
    fitted = Fitted()
    if operation.kind == "completion":
        honoured = honoured - OF_CHATS_ALONE
    wishes = _wishes(asked)
    if fit is not None:
        fitted = fit_members(fit, body, asked, lenient=mode == "adapt", effort=operation.effort)
        if gone := {*fitted.adapted, *fitted.dropped}:
            asked = {path: name for path, name in asked.items() if path not in gone}

    def settle(refused: Mapping[str, str]) -> None:
        for path, why in refused.items():
            wish = mode == "adapt" and asked.get(path) in wishes
            may_go = mode == "drop" or wish or path in usual
            _give_up(provider, path, fitted, why, may_go=may_go)
            remove(body, path)

    def parsed() -> tuple[Translation, GenerationRequest]:
        read = cast(Translation, operation.parse(body, target.model))
        return read, read.requests[0]

    known = _not_taken(call, asked, honoured, fitted)
    kinds = frozenset() if call.toolbox is None else call.toolbox.kinds
    # Whether its vendor runs a search is known when it is known what is asked of it.
    searching = {path: why for path, why in known.items() if generates and _searches(path)}
    settle({path: why for path, why in known.items() if path not in searching})
    _leave_out_hosted(body, kinds | {WEB_SEARCH} if searching else kinds)
    if not generates:
        parsed_body = operation.parse(body, target.model)
        _leave_out_hints(provider, None, hints, fitted)
        return parsed_body, fitted
    translation, request = parsed()
    if searching and not _by_vendor(provider, request, fitted, fit):
        settle(searching)
        _leave_out_hosted(body, kinds)
        translation, request = parsed()
    whys = provider.unsupported_values(_told(request, fit, adapt=mode == "adapt"))
    values = {
        path: whys[name] for path, name in asked.items() if name in whys and path not in known
    }
    if values:
        settle(values)
        translation, request = parsed()
    if fit is not None:
        fitted.refused = {}
        fit_request(fit, request, asked, fitted, adapt=mode == "adapt")
        if fitted.refused:
            settle(fitted.refused)
            translation, request = parsed()
    fitted.changes |= _by_vendor(provider, request, fitted, fit)
    _leave_out_placeless(provider, request, fitted)
    _leave_out_hints(provider, request, hints, fitted)
    return translation, fitted


def _leave_out_placeless(
    provider: VocabularyProvider, request: GenerationRequest, fitted: Fitted
) -> None:
    """Leave out what the provider has no place for in messages and tools, and say so.

    Raises:
        APIError: 400, its template wants that refused.
    """
    if not isinstance(request, ChatCompletionRequest):
        return
    asked = structs.replace(request, **fitted.changes)
    placeless = provider.placeless_in(asked)
    for name, changes in without_placeless(asked, placeless).items() if placeless else ():
        _give_up(provider, name, fitted, may_go=_mode(provider) != "refuse")
        fitted.changes |= changes


def _leave_out_hints(
    provider: VocabularyProvider,
    request: GenerationRequest | None,
    hints: Mapping[str, str],
    fitted: Fitted,
) -> None:
    """Leave out the hints that the provider has no place for, and say so.

    Raises:
        APIError: 400, its template wants that refused.
    """
    gone, changes = list(hints), dict[str, Any]()
    if isinstance(request, ChatCompletionRequest):
        gone, changes = without_hints(request, hints, provider.hint_places)
    for path in gone:
        _give_up(provider, path, fitted, may_go=_mode(provider) != "refuse")
    fitted.changes |= changes


def _give_up(
    provider: VocabularyProvider, path: str, fitted: Fitted, why: str = "", *, may_go: bool
) -> None:
    """Leave out what the provider can't be told, and say so; or refuse it, unless it `may_go`."""
    if not may_go:
        raise unsupported_parameter(path, provider.id, why)
    if path not in fitted.dropped:
        fitted.dropped.append(path)


def _wishes(asked: Mapping[str, str]) -> Set[str]:
    """What may be left out of a request that asks for all of `asked`, by name."""
    # One that shows where a reply has something from shows a reply that does not say so; and every
    # client checks what a free call says, as it has to where nobody promises anything.
    wishes = WISHES | {HOSTED_SETTING, CITED_DOCUMENTS, CHECKED_ARGUMENTS, EMBEDDING_PURPOSE}
    # A client that has tools of its own goes on with these.
    return wishes | {HOSTED_TOOLS, TOOL_GRAMMAR} if "tools" in asked.values() else wishes


def _not_taken(
    call: Call, asked: Mapping[str, str], honoured: frozenset[str], fitted: Fitted
) -> dict[str, str]:
    """The paths of what is asked for and neither honoured nor run by the server, and why."""
    refused = {path: "" for path, name in asked.items() if name not in honoured} | fitted.refused
    if call.toolbox is None or "tools" not in honoured:
        return refused
    # Those the server runs are functions that the model calls.
    return {path: why for path, why in refused.items() if not _is_run(path, call.toolbox)}


def _by_vendor(
    provider: VocabularyProvider, request: GenerationRequest, fitted: Fitted, fit: Fit | None
) -> dict[str, Any]:
    """What is different in `request` where the search of the web that it asks for is its vendor's.

    The vendor's is used where it has one that can be told all that the request says, this server's
    where it has one, and otherwise nobody's. Of calls that are relayed `providers.answer.relays`
    says the same, by the kinds of tools alone: the vendor gets what they say as it is.
    """
    if not isinstance(request, ChatCompletionRequest):
        return {}
    found = [tool for tool in request.hosted if isinstance(tool, WebSearchTool)]
    if len(found) != 1 or (fit is not None and fit.facts.web_search is False):
        return {}
    if not provider.searches(found[0], structs.replace(request, **fitted.changes)):
        return {}
    others = tuple(tool for tool in request.hosted if tool is not found[0])
    return {"hosted": others, "vendor_search": found[0]}


def _told(request: GenerationRequest, fit: Fit | None, *, adapt: bool) -> GenerationRequest:
    """`request` with the form, and the word, in which its model is told how hard to think."""
    if fit is None or not isinstance(request, ChatCompletionRequest):
        return request
    effort = request.reasoning_effort
    if effort is not None and adapt:
        effort = fit.effort(effort)
    return structs.replace(request, thinking=fit.form, reasoning_effort=effort)


def _searches(path: str) -> bool:
    """Whether the member at `path` asks for a search of the web, or is one that has been."""
    named = path.rpartition(".")[2]
    return (MEMBERS.get(path) or kind_of(named)) == WEB_SEARCH


def _is_run(path: str, toolbox: HostedToolbox) -> bool:
    """Whether the server runs the tools that the member at `path` asks for, or is about."""
    named = path.rpartition(".")[2]
    if path.startswith("input["):
        return kind_of(named) in toolbox.known
    return (MEMBERS.get(path) or kind_of(named)) in toolbox.kinds


def _leave_out_hosted(body: dict[str, Any], kinds: Set[str]) -> None:
    """Mark the tools of a request that are left out, as nobody runs them: those of other kinds."""
    tools = body.get("tools")
    gone = [name for name, kind in GOOGLES_TOOLS.items() if kind not in kinds]
    for tool in tools if isinstance(tools, list) else (tools,):
        if isinstance(tool, dict):
            for name in gone:
                tool.pop(name, None)
    if not isinstance(tools, list):
        return
    for index, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind_of(kind) is not None and kind_of(kind) not in kinds:
            tools[index] = {"type": "left_out", "left_out": kind}


def parsed_to_count(
    provider: VocabularyProvider, call: Call, target: Target
) -> tuple[TokenCountTranslation, ChatCompletionRequest]:
    """A request that is counted, and not answered, and its conversation as it would be asked.

    Raises:
        APIError: 400, it is malformed.
    """
    body = decoded(call)
    _leave_out_hosted(body, frozenset())  # Nothing is run to count.
    translation = cast(TokenCountTranslation, call.operation.parse(body, target.model))
    fitted = Fitted()
    if target.fit is not None:
        fitted.changes["thinking"] = target.fit.form
        if _mode(provider) == "adapt":
            fit_messages(target.fit.facts, translation.request.messages, fitted)
    return translation, structs.replace(
        translation.request, request_id=call.request_id, **fitted.changes
    )


def _mode(provider: VocabularyProvider) -> str:
    """What becomes of what the provider or its model does not take."""
    return provider.config.unsupported or "adapt"


def decoded(call: Call) -> dict[str, Any]:
    """The members of a request.

    Raises:
        APIError: 400, they are nested too deeply.
    """
    name = too_deep(call.fields)
    if name is not None:
        raise nested_too_deeply(name, MAX_DEPTH)
    return {name: unicode_from_raw(raw) for name, raw in call.fields.items()}
