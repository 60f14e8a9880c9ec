"""Recognising tool calls in an answer, in Qwen's form: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def has_tool_call(text: str) -> bool:
    """Whether the text holds at least one complete, well-formed tool call."""
    before, *rest = text.split(_CLOSE)
    candidates = [before, *rest[:-1]] if rest else []
    return any(_is_call(candidate.rpartition(_OPEN)) for candidate in candidates)


def _is_call(parts: tuple[str, str, str]) -> bool:
    _, opening, body = parts
    if not opening:
        return False
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)
