"""Control tokens typed by a client, told apart from those that the chat template writes.

A client must be able to write about `<|im_end|>` or `<|image_pad|>` without ending a turn or claiming an image. So
control tokens in the client's strings are put between two marks before the template is rendered, and what stands
between marks is encoded as plain text afterwards (`tokenizer.py`). It is what transformers does when it is told to
sanitize control tokens; text without them is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Any

from python_backends.errors import InvalidRequest

# Unicode noncharacters: no text that is meant for exchange holds them.
_START, _END = "\ufdd0", "\ufdd1"


class ControlTokens:
    """The control tokens of a tokenizer, longest first where one begins another. Thread-safe."""

    def __init__(self, tokens: Collection[str]) -> None:
        either = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)) or "(?!)"
        self._tokens = re.compile(either)
        self._marked = re.compile(f"{_START}({either}){_END}|[{_START}{_END}]")

    def mark(self, value: Any, field: str) -> Any:
        """A copy of `value` (strings, lists and dicts in any nesting) in which every control token is marked.

        Raises:
            InvalidRequest: a string holds a mark already.
        """
        if isinstance(value, str):
            return self._mark_text(value, field)
        if isinstance(value, dict):
            return {self._mark_text(key, field): self.mark(item, field) for key, item in value.items()}
        if isinstance(value, list):
            marked = [self.mark(item, field) for item in value]
            return self._cut_between(value, marked)
        return value

    def split(self, prompt: str) -> Iterator[tuple[str, bool]]:
        """The pieces of a rendered prompt without its marks, and for each whether it is a marked control token."""
        if _START not in prompt and _END not in prompt:
            yield prompt, False
            return
        for i, piece in enumerate(self._marked.split(prompt)):
            if piece:
                yield piece, i % 2 == 1

    def _mark_text(self, text: str, field: str) -> str:
        if _START in text or _END in text:
            raise InvalidRequest(field, "the noncharacter U+FDD0 or U+FDD1", "characters that Unicode assigns")
        return self._tokens.sub(rf"{_START}\g<0>{_END}", text)

    def _cut_between(self, parts: list[Any], marked: list[Any]) -> list[Any]:
        """Puts a mark between neighbouring text parts where their texts together spell a control token.

        Templates print them without a gap.
        """
        for is_text, run in groupby(range(len(parts)), lambda i: _is_text(parts[i])):
            indices = list(run)
            if not is_text or len(indices) == 1:
                continue
            texts = [parts[i]["text"] for i in indices]
            inside = {at for found in self._tokens.finditer("".join(texts)) for at in range(*found.span())[1:]}
            begin = 0
            for i, text in zip(indices, texts, strict=True):
                if begin in inside:
                    marked[i]["text"] = _END + marked[i]["text"]
                begin += len(text)
        return marked


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
