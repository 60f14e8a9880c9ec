"""Function definitions and function calls in OpenAI's form, checked and brought into the form of chat templates."""

from __future__ import annotations

from typing import Any

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.strict_json import json_kind, parse_json

_TOOL = '{"type": "function", "function": {"name": …}}'
_CALL = '{"type": "function", "function": {"name": …, "arguments": …}}'


def read_tools(data: bytes | None, limits: Limits) -> list[dict[str, Any]]:
    """The functions that the model may call, as they came; empty without `tools`.

    Raises:
        InvalidRequest: no JSON list of function definitions, or too many.
    """
    if data is None:
        return []
    tools = parse_json(data, "tools", limits)
    if not isinstance(tools, list):
        raise InvalidRequest("tools", json_kind(tools), "a JSON list of function definitions")
    if len(tools) > limits.max_tools:
        raise InvalidRequest("tools", f"{len(tools)} functions", f"at most {limits.max_tools}")
    for i, tool in enumerate(tools):
        function = _function(tool, f"tools[{i}]", _TOOL)
        for key, kind, allowed in (("description", str, "a string"), ("parameters", dict, "a JSON schema object")):
            if key in function and not isinstance(function[key], kind):
                raise InvalidRequest(f"tools[{i}].function.{key}", json_kind(function[key]), allowed)
    return tools


def read_tool_calls(calls: Any, field: str, limits: Limits) -> list[dict[str, Any]]:
    """The calls of an assistant turn. Arguments that came as JSON text become the object that it stands for.

    Raises:
        InvalidRequest: no list of function calls, or arguments that are no JSON object.
    """
    if not isinstance(calls, list):
        raise InvalidRequest(field, json_kind(calls), f"a list of {_CALL}")
    return [_call(call, f"{field}[{i}]", limits) for i, call in enumerate(calls)]


def _call(call: Any, field: str, limits: Limits) -> dict[str, Any]:
    function = _function(call, field, _CALL)
    arguments = function.get("arguments", {})
    where = f"{field}.function.arguments"
    if isinstance(arguments, str):
        # Clients send an empty string for a function without parameters.
        arguments = parse_json(arguments.encode(), where, limits) if arguments.strip() else {}
    if not isinstance(arguments, dict):
        raise InvalidRequest(where, json_kind(arguments), "a JSON object, or a string that holds one")
    known = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": call["id"], **known} if isinstance(call.get("id"), str) else known


def _function(entry: Any, field: str, form: str) -> dict[str, Any]:
    if not isinstance(entry, dict) or entry.get("type", "function") != "function":
        raise InvalidRequest(field, "another form", form)
    function = entry.get("function")
    if not isinstance(function, dict):
        raise InvalidRequest(f"{field}.function", "another form" if "function" in entry else "nothing", form)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{field}.function.name", f"{name!r}"[:64], "a name")
    return function
