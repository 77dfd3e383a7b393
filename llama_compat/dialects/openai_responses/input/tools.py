"""The tools of a request: flattened for the model, and called by their own names in the reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from llama_compat.dialects.base import HOSTED_SETTING, HOSTED_TOOLS, TOOL_GRAMMAR, UNKNOWN
from llama_compat.dialects.members import (
    as_list,
    as_object,
    optional_schema_in,
    optional_text_in,
    text_in,
)
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.asked.common import unread_settings
from llama_compat.hosted.asked.mcp import without_secrets
from llama_compat.hosted.vocabulary import kind_of
from llama_compat.tools.custom_tools import custom_tool
from llama_compat.tools.names import OPENAI_NAMES
from llama_compat.types import ToolChoice, ToolDefinition

_FUNCTION_MEMBERS = frozenset(
    {
        "type",
        "name",
        "description",
        "parameters",
        "strict",
        "output_schema",
        "defer_loading",
        "allowed_callers",
    }
)
_CUSTOM_MEMBERS = frozenset(
    {"type", "name", "description", "format", "defer_loading", "allowed_callers"}
)


class Tool(Struct, frozen=True):
    """One tool that the model is offered, and what the client calls it."""

    definition: ToolDefinition
    name: str
    namespace: str | None = None
    is_custom: bool = False


class Toolbox:
    """The tools of one request.

    Args:
        tools: in the order in which the model is shown them; of those that come again, the last.

    Attributes:
        definitions: what it is shown.
    """

    def __init__(self, tools: list[Tool]) -> None:
        self._by_model_name = {tool.definition.tool_name: tool for tool in tools}
        self._tools = list(self._by_model_name.values())
        self.definitions = tuple(tool.definition for tool in self._tools)

    def called(self, model_name: str) -> Tool:
        """The tool that the model means; one that nobody offered is a function of that name."""
        tool = self._by_model_name.get(model_name)
        return tool or Tool(ToolDefinition(model_name), model_name)

    def only(self, allowed: list[Any], path: str) -> Toolbox:
        """Those that `allowed_tools` leaves.

        Raises:
            APIError: 400, one is not among the tools.
        """
        names: set[str] = set()
        for index, each in enumerate(allowed):
            at = f"{path}[{index}]"
            names |= self._names_of(as_object(each, at), at)
        return Toolbox([tool for tool in self._tools if tool.definition.tool_name in names])

    def name_of(self, named: Mapping[str, Any], path: str) -> str:
        """What the model calls the one tool that `named` names.

        Raises:
            APIError: 400, it is not among the tools.
        """
        name = text_in(named, "name", path)
        found = model_name(name, optional_text_in(named, "namespace", path))
        if found not in self._by_model_name:
            raise invalid_parameter(f"{path}.name", f"No tool is called '{name}' in 'tools'.")
        return found

    def _names_of(self, named: Mapping[str, Any], path: str) -> set[str]:
        match named.get("type"):
            case "function" | "custom":
                return {self.name_of(named, path)}
            case "namespace":
                space = text_in(named, "name", path)
                return {
                    tool.definition.tool_name for tool in self._tools if tool.namespace == space
                }
        return set()


def model_name(name: str, namespace: str | None) -> str:
    """What the model calls the tool `name`: in a namespace, a name that most vendors take."""
    return name if namespace is None else OPENAI_NAMES.fitted(f"{namespace}__{name}")


def parse_tools(value: Any, path: str = "tools") -> list[Tool]:
    """The tools that the model is offered; those of `unsupported_tools` are left out.

    Raises:
        APIError: 400 with the path of what is malformed, or of a name that is taken.
    """
    tools: list[Tool] = []
    for index, each in enumerate(as_list(value, path)):
        tools += _parse_tool(as_object(each, f"{path}[{index}]"), f"{path}[{index}]")
    taken: set[str] = set()
    for tool in tools:
        name = tool.definition.tool_name
        if name in taken:
            raise invalid_parameter(path, f"Two tools of '{path}' are called '{name}'.")
        taken.add(name)
    return tools


def _parse_tool(tool: Mapping[str, Any], path: str) -> Iterator[Tool]:
    match tool.get("type"):
        case "function":
            yield _parse_function(tool, path)
        case "custom":
            yield _parse_custom(tool, path)
        case "namespace":
            space = text_in(tool, "name", path)
            for index, each in enumerate(as_list(tool.get("tools"), f"{path}.tools")):
                at = f"{path}.tools[{index}]"
                inner = as_object(each, at)
                if inner.get("type") == "function":
                    yield _parse_function(inner, at, space)
                elif inner.get("type") == "custom":
                    yield _parse_custom(inner, at, space)


def _parse_function(tool: Mapping[str, Any], path: str, namespace: str | None = None) -> Tool:
    name = text_in(tool, "name", path)
    strict = tool.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise invalid_parameter(f"{path}.strict", f"'{path}.strict' must be a boolean.")
    definition = ToolDefinition(
        model_name(name, namespace),
        optional_text_in(tool, "description", path),
        optional_schema_in(tool, "parameters", path),
        strict,
    )
    return Tool(definition, name, namespace)


def _parse_custom(tool: Mapping[str, Any], path: str, namespace: str | None = None) -> Tool:
    name = text_in(tool, "name", path)
    description = optional_text_in(tool, "description", path)
    grammar = None
    match tool.get("format"):
        case {"type": "grammar", "syntax": str(syntax), "definition": str(rules)}:
            # It is not enforced, which `unsupported_tools` has said; the model may keep to it.
            grammar = syntax, rules
    definition = custom_tool(model_name(name, namespace), description, grammar)
    return Tool(definition, name, namespace, is_custom=True)


def unsupported_tools(value: Any, path: str = "tools") -> Iterator[tuple[str, str]]:
    """The paths of what no model can be offered here, and the names that these have among a call's
    parameters: tools that OpenAI hosts, the kind after the place, and members that change how a
    tool is called."""
    for index, tool in enumerate(value if isinstance(value, list) else ()):
        at = f"{path}[{index}]"
        match tool:
            case {"type": "function"}:
                yield from _unsupported_members(tool, _FUNCTION_MEMBERS, at)
            case {"type": "custom"}:
                yield from _unsupported_members(tool, _CUSTOM_MEMBERS, at)
                if (tool.get("format") or {"type": "text"}).get("type") != "text":
                    yield f"{at}.format", TOOL_GRAMMAR
            case {"type": "namespace"}:
                yield from unsupported_tools(tool.get("tools"), f"{at}.tools")
            case {"type": str(kind)}:
                yield f"{at}.{kind}", HOSTED_TOOLS
                for each in unread_settings(tool, at):
                    yield each, HOSTED_SETTING


def _unsupported_members(
    tool: Mapping[str, Any], known: frozenset[str], path: str
) -> Iterator[tuple[str, str]]:
    for name, value in tool.items():
        if name not in known and value not in (None, False):
            yield f"{path}.{name}", UNKNOWN
    callers = tool.get("allowed_callers")
    if isinstance(callers, list) and "direct" not in callers:
        yield f"{path}.allowed_callers", UNKNOWN


def parse_tool_choice(
    value: Any, toolbox: Toolbox, has_hosted: bool = False
) -> tuple[ToolChoice | None, Toolbox]:
    """The `tool_choice` of a request, and those of its tools that the model is offered.

    Args:
        value: it.
        toolbox: the client's own tools.
        has_hosted: whether there are tools that the server runs.

    Raises:
        APIError: 400, it is none, or names what there is not.
    """
    path = "tool_choice"
    match value:
        case None | "auto":
            return None, toolbox
        case "required" | "none":
            return ToolChoice(value), toolbox
        case {"type": "function" | "custom"}:
            return ToolChoice("required", toolbox.name_of(value, path)), toolbox
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode}:
            allowed = as_list(value.get("tools"), f"{path}.tools")
            offered = toolbox.only(allowed, f"{path}.tools")
            if not offered.definitions and not has_hosted:
                if mode == "auto":
                    return None, offered
                raise invalid_parameter(
                    f"{path}.tools", "A call is required, but none of the tools is allowed."
                )
            return (ToolChoice("required") if mode == "required" else None), offered
        case {"type": str(kind)}:
            raise invalid_parameter(
                f"{path}.type", f"Invalid value: '{kind}'. There is no such tool here to choose."
            )
    raise invalid_parameter(
        path,
        "'tool_choice' must be 'auto', 'required', 'none', or an object of the type 'function',"
        " 'custom' or 'allowed_tools'.",
    )


def demands_call(value: Any) -> bool:
    """Whether `tool_choice` asks for more than the model would do anyway."""
    match value:
        case None | "auto" | {"type": "allowed_tools", "mode": "auto"}:
            return False
    return True


def described(tools: Any) -> list[Any]:
    """The `tools` as a response repeats them: those that the model was offered, every member of a
    function there, and no credentials for servers."""
    unset = {"description": None, "parameters": None, "strict": None}
    return [
        {**unset, **tool} if tool["type"] == "function" else without_secrets(tool)
        for tool in tools or ()
        if isinstance(tool, dict) and _is_offered(tool.get("type"))
    ]


def _is_offered(kind: Any) -> bool:
    """Whether a model is offered tools of this type; those that the server does not run have been
    taken out before."""
    if kind in ("function", "custom", "namespace"):
        return True
    return isinstance(kind, str) and kind_of(kind) is not None
