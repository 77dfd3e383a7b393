"""What a model's facts make of a request: one rule for every client API and every vendor's.

It is put together when a template is loaded, as the `Fit` of a target; None where a model is not
known, or takes everything. What a request asks is known by OpenAI's names, which each dialect gives
for its own members (`Operation.parameters`), so that the rule is written once:

    left out    what is so anyway: a temperature of 1, the effort `none` of a model that can't think
    mapped      what has an equal meaning: a limit above the model's, an effort that it has another
                word for, the role of instructions, a schema as the arguments of a forced call
    dropped     wishes that change nothing about a reply's form: how tokens are drawn, how hard to
                think
    refused     the rest, which a client would miss

The first two are named in the reply's header `x-llama-compat-adapted`, the third in
`x-llama-compat-dropped`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field, structs

from llama_compat.catalog.facts import EFFORTS, Facts
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Message,
    SystemMessage,
    ThinkingForm,
    UserMessage,
    content_text,
)

SAMPLING = frozenset({"temperature", "top_p", "top_k"})

WISHES = frozenset(
    {
        *SAMPLING,
        "chat_template_kwargs",
        "frequency_penalty",
        "min_p",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "seed",
        "truncation",
        "verbosity",
    }
)
"""OpenAI's names of what steers a reply and changes nothing about its form: an application that
sets one works without it too. A conversation that is to be cut where it does not fit is answered
where it does, and is told so where it does not."""

_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "temperature": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "frequency_penalty": (0,),
    "min_p": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "reasoning_effort": ("none",),
}
"""What is so where nobody asks for anything."""

_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})


class Fit(Struct, frozen=True):
    """What is to be done about requests for one model.

    Attributes:
        facts: the model's.
        refused: OpenAI's names of what it takes no other than the default of.
        unthinking: of those, what it does take where it is told not to think.
        form: how it is told how hard to think; None where that is left to its dialect.
        adapts_relayed: whether calls that are relayed are fitted too.
    """

    facts: Facts
    refused: frozenset[str]
    unthinking: frozenset[str] = frozenset()
    form: ThinkingForm | None = None
    adapts_relayed: bool = False

    def refuses(self, name: str, *, thinking: bool) -> bool:
        """Whether the model takes no other than the default of the parameter `name`."""
        return name in self.refused and (thinking or name not in self.unthinking)

    def thinks(self, effort: Any) -> bool:
        """Whether it does, asked for `effort`; None is nothing said."""
        return (self.facts.usual_effort if effort is None else effort) not in ("none", False)

    def effort(self, wanted: str) -> str:
        """The model's word for an effort: the nearest that it knows, rather more than less."""
        known = self.facts.efforts
        if known is None or wanted in known or wanted not in EFFORTS:
            return wanted
        place = EFFORTS.index(wanted)
        more = [each for each in EFFORTS[place:] if each in known]
        less = [each for each in EFFORTS[:place] if each in known]
        return more[0] if more else less[-1]


def fit_of(facts: Facts, *, adapts_relayed: bool = False) -> Fit | None:
    """What is to be done about requests for a model with these facts; None if nothing is."""
    refused = set(facts.refuses or ())
    if facts.sampling in ("default", "unthinking", "one"):
        refused |= SAMPLING
    if facts.reasoning is False:
        refused.add("reasoning_effort")
    unthinking = SAMPLING if facts.sampling in ("unthinking", "one") else frozenset()
    matters = (
        facts.output,
        facts.renamed,
        facts.thinking_form,
        facts.efforts,
        facts.instructions,
        # Only what a model is known not to do.
        facts.forced_tools is False or None,
        facts.structured_output is False or None,
        facts.json_object is False or None,
        facts.json_beside_tools is False or None,
        facts.web_search is False or None,
        facts.prefill is False or None,
    )
    if not refused and not any(each is not None for each in matters):
        return None
    return Fit(facts, frozenset(refused), unthinking, facts.thinking_form, adapts_relayed)


class Fitted(Struct):
    """What became of one request.

    Attributes:
        adapted: members that were left out, or mapped, each by its path with what it is now.
        dropped: paths of wishes that were left out.
        refused: paths of what can't be honoured, and why.
        changes: what is different in the request's vocabulary.
        reply_tool: whether the reply is to come as the arguments of a call
            (`llama_compat.fitting.forced_reply.reply_by_call`).
    """

    adapted: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    reply_tool: bool = False


# --------------------------------------------------------------------------------------------------
# Members of a body, in whatever client API
# --------------------------------------------------------------------------------------------------


def fit_members(
    fit: Fit,
    body: dict[str, Any],
    asked: Mapping[str, str],
    *,
    lenient: bool,
    effort: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> Fitted:
    """Fit the members of a decoded request, which is changed.

    Args:
        fit: the target's.
        body: the request, the caller's own.
        asked: OpenAI's names of what it asks for, by path.
        lenient: leave wishes out that the model does not take, and bring limits down to its own;
            otherwise both are left to be refused.
        effort: reads OpenAI's word for how hard to think from a request whose own API has others.
    """
    fitted = Fitted()
    thinking = True
    if fit.unthinking:
        efforts = [path for path, name in asked.items() if name == "reasoning_effort"]
        told = effort(body) if effort is not None else None
        thinking = fit.thinks(told or (member_at(body, efforts[0]) if efforts else None))
    for path, name in asked.items():
        if name not in fit.refused and name not in _LIMITS:
            continue
        value = member_at(body, path)
        if fit.refuses(name, thinking=thinking):
            if is_default(name, value):
                remove(body, path)
                fitted.adapted.append(path)
            elif lenient and name in WISHES:
                remove(body, path)
                fitted.dropped.append(path)
            else:
                fitted.refused[path] = "the model takes no other than its default"
        elif name in _LIMITS and lenient:
            limit, wanted = fit.facts.output, _number(value)
            if limit is not None and wanted is not None and wanted > limit:
                set_member(body, path, limit)
                fitted.adapted.append(f"{path}={limit}")
    if fit.facts.sampling == "one" and not thinking:
        _fit_to_one(body, asked, fitted, lenient=lenient)
    return fitted


def _fit_to_one(
    body: dict[str, Any], asked: Mapping[str, str], fitted: Fitted, *, lenient: bool
) -> None:
    """Leave one of temperature and top_p: the one that asks for something, or the temperature."""
    paths = {name: path for path, name in asked.items() if name in ("temperature", "top_p")}
    values = {name: member_at(body, path) for name, path in paths.items()}
    if len(values) < 2 or None in values.values():
        return
    other = next((name for name in ("top_p", "temperature") if is_default(name, values[name])), "")
    path = paths[other or "top_p"]
    if other or lenient:
        remove(body, path)
        (fitted.adapted if other else fitted.dropped).append(path)
    else:
        fitted.refused[path] = "the model takes either a temperature or a top_p"


def is_default(name: str, value: Any) -> bool:
    """Whether `value` asks for what is so anyway."""
    return any(
        value == default and isinstance(value, bool) == isinstance(default, bool)
        for default in _DEFAULTS.get(name, ())
    )


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def member_at(body: Mapping[str, Any], path: str) -> Any:
    """The member at `path` (`a.b`) of a body; None where there is none."""
    if path in body:
        return body[path]
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def set_member(body: dict[str, Any], path: str, value: Any) -> None:
    """Give the member at `path` another value, if it is there."""
    inner, name = _parent(body, path)
    if inner is not None and name in inner:
        inner[name] = value


def remove(body: dict[str, Any], path: str) -> None:
    """Take the member at `path` out of a body."""
    inner, name = _parent(body, path)
    if inner is not None:
        inner.pop(name, None)


def _parent(body: dict[str, Any], path: str) -> tuple[dict[str, Any] | None, str]:
    *parents, name = path.split(".") if path not in body else [path]
    inner: Any = body
    for parent in parents:
        inner = inner.get(parent) if isinstance(inner, dict) else None
    return (inner if isinstance(inner, dict) else None), name


# --------------------------------------------------------------------------------------------------
# The vocabulary
# --------------------------------------------------------------------------------------------------


def fit_request(
    fit: Fit,
    request: ChatCompletionRequest | CompletionRequest,
    asked: Mapping[str, str],
    fitted: Fitted,
    *,
    adapt: bool,
) -> None:
    """Fit what has a place in the vocabulary alone; what comes of it is in `fitted`.

    Args:
        fit: the target's.
        request: what is asked, the members fitted already.
        asked: OpenAI's names of what it asks for, by path.
        fitted: what became of the members.
        adapt: map what has an equal meaning; otherwise it is left to be refused.
    """
    if refused := fit.refused & request.sampling.stated:
        stated = request.sampling.stated - refused
        fitted.changes["sampling"] = structs.replace(request.sampling, stated=stated)
    if not isinstance(request, ChatCompletionRequest):
        return
    if fit.form is not None:
        fitted.changes["thinking"] = fit.form
    if request.adaptive_thinking and "reasoning_effort" in fit.refused:
        fitted.changes["adaptive_thinking"] = False  # It does not, which it was free to.
    if request.reasoning_effort is not None:
        path = _path(asked, "reasoning_effort")
        _fit_effort(fit, request.reasoning_effort, path, fitted, adapt=adapt)
    if request.response_format is not None:
        _fit_format(fit, request, _path(asked, "response_format"), fitted, adapt=adapt)
    choice = request.tool_choice
    if fit.facts.forced_tools is False and choice is not None and choice.mode == "required":
        why = "the model can't be made to call a tool"
        fitted.refused[_path(asked, "tool_choice")] = why
    if adapt:
        fit_messages(fit.facts, request.messages, fitted)


def fit_messages(facts: Facts, messages: Sequence[Message], fitted: Fitted) -> None:
    """Put instructions and what the model has said last as it takes them.

    Args:
        facts: of the model.
        messages: the conversation.
        fitted: what became of it, in `changes` and `adapted`.
    """
    role = facts.instructions
    if role is not None and (with_role := _with_role(messages, role)) is not None:
        fitted.changes["messages"] = messages = with_role
        fitted.adapted.append(f"messages.role={role}")
    if facts.prefill is False and ends_with_reply(map(_turn, messages)):
        fitted.changes["messages"] = (*messages, UserMessage(GO_ON))
        fitted.adapted.append(PREFILL)


GO_ON = "Go on from where you stopped, without saying any of it again."
"""What the user says to a model that does not go on with what it has said by itself."""

PREFILL = "messages.prefill=user"
"""What that is called where it is said what was mapped."""


def ends_with_reply(turns: Iterable[tuple[str, bool]]) -> bool:
    """Whether the model is to go on with what it has said last: nobody has answered it since.

    Args:
        turns: the role of each message, and whether it says anything.
    """
    roles = [role for role, speaks in turns if speaks and role not in INSTRUCTIONS]
    return bool(roles) and roles[-1] == "assistant"


INSTRUCTIONS = ("system", "developer")
"""The roles of instructions, which are nobody's turn."""


def _turn(message: Message) -> tuple[str, bool]:
    match message:
        case SystemMessage(role=role):
            return role, True
        case CompletionMessage():
            # A call waits for its answer, which is another matter.
            return "assistant", bool(content_text(message.content).strip())
    return "user", True


def _path(asked: Mapping[str, str], name: str) -> str:
    """Where a request says what OpenAI calls `name`."""
    return next((path for path, each in asked.items() if each == name), name)


def _fit_effort(fit: Fit, wanted: str, path: str, fitted: Fitted, *, adapt: bool) -> None:
    form, effort = fit.form, fit.effort(wanted)
    if effort != wanted and not adapt:
        known = ", ".join(map(repr, fit.facts.efforts or ()))
        fitted.refused[path] = f"the model knows the efforts {known}"
    elif effort != wanted:
        fitted.changes["reasoning_effort"] = effort
        fitted.adapted.append(f"{path}={effort}")
    elif form is not None and form.how == "budget" and effort != "none":
        fitted.adapted.append(f"{path}=budget")


def _fit_format(
    fit: Fit, request: ChatCompletionRequest, path: str, fitted: Fitted, *, adapt: bool
) -> None:
    wanted, facts = request.response_format, fit.facts
    if wanted is None or wanted.type == "text":
        return
    if wanted.type == "json_object" and facts.json_object is False:
        fitted.refused[path] = "the model can't be held to any JSON object, but to a 'json_schema'"
        return
    beside = facts.json_beside_tools is False and bool(request.tools or request.hosted)
    if not beside and (wanted.type == "json_object" or facts.structured_output is not False):
        return
    can_be_forced = facts.tools is not False and facts.forced_tools is not False
    if not adapt or not can_be_forced:
        what = "JSON beside tools" if beside else "a schema"
        fitted.refused[path] = f"the model can't be held to {what}, and it can't be forced to"
        return
    fitted.reply_tool = True
    fitted.adapted.append(f"{path}=tool")


def _with_role(messages: Sequence[Message], role: Any) -> tuple[Message, ...] | None:
    """`messages` with instructions in this role; None where they are already."""
    others = [each for each in messages if isinstance(each, SystemMessage) and each.role != role]
    if not others:
        return None
    return tuple(
        structs.replace(each, role=role) if isinstance(each, SystemMessage) else each
        for each in messages
    )


# --------------------------------------------------------------------------------------------------
# What a target can't do, known before it is asked
# --------------------------------------------------------------------------------------------------

INPUTS = ("image", "audio", "document")


def lacking(fit: Fit, *, lenient: bool, adapt: bool) -> frozenset[str]:
    """What a request would be refused for that asks it of the model.

    Args:
        fit: the target's.
        lenient: wishes are left out for it.
        adapt: what has an equal meaning is mapped for it.

    Returns:
        OpenAI's names, and besides `forced_tools`, `json_schema`, `json_object` and kinds of input.
    """
    facts = fit.facts
    names = set(fit.refused - WISHES if lenient else fit.refused - fit.unthinking)
    names |= {kind for kind in INPUTS if not facts.reads(kind)}
    if facts.tools is False:
        names.add("tools")
    if facts.forced_tools is False:
        names.add("forced_tools")
    if facts.json_object is False:
        names.add("json_object")
    if facts.structured_output is False and not (adapt and facts.tools):
        names.add("json_schema")
    return frozenset(names)


def features(body: Mapping[str, Any], asked: Mapping[str, str]) -> set[str]:
    """What a decoded request asks for, in the words of `lacking`, but for kinds of input.

    Args:
        body: the request; its conversation may be missing.
        asked: OpenAI's names of what it asks for, by path.
    """
    found = set()
    for path, name in asked.items():
        value = member_at(body, path)
        kind = value.get("type") if isinstance(value, dict) else value
        if name == "tool_choice":
            if kind not in ("auto", "none"):
                found.add("forced_tools")
        elif name == "response_format":
            described = isinstance(value, dict) and value.get("schema") is not None
            any_object = kind in ("json_object", "application/json") and not described
            found.add("json_object" if any_object else "json_schema")
        elif not is_default(name, value):
            found.add(name)
    return found
