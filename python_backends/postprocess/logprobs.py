"""Log-probabilities in OpenAI's chat form, lined up with the text pieces that carry the tokens."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from python_backends.engine.base import TokenLogprob
from python_backends.postprocess.detokenizer import Vocabulary
from python_backends.wire import finite_logprob


class LogprobLedger:
    """Tokens whose text is not sent yet, with the characters of the answer that they cover."""

    def __init__(self, vocabulary: Vocabulary, top: int) -> None:
        """`top`: how many of the most likely tokens are reported beside the chosen one."""
        self._vocabulary = vocabulary
        self._top = top
        self._waiting: deque[tuple[int, int, TokenLogprob]] = deque()

    def add(self, token: TokenLogprob, start: int, end: int) -> None:
        """Note a token that covers the characters `start` to `end` of the answer; the same for one without text."""
        self._waiting.append((start, end, token))

    def take_sent(self, sent: int) -> str | None:
        """JSON of the tokens, not taken before, that lie within the first `sent` characters; None if there are none."""
        tokens = []
        while self._waiting and self._waiting[0][1] <= sent:
            tokens.append(self._waiting.popleft()[2])
        return self._json(tokens)

    def take_last(self, sent: int, cut: bool) -> str | None:
        """The rest of the tokens, at the end. If the text was `cut` at `sent`, those wholly behind it are left out."""
        tokens = [token for start, end, token in self._waiting if not cut or start < sent or end <= sent]
        self._waiting.clear()
        return self._json(tokens)

    def _json(self, tokens: Iterable[TokenLogprob]) -> str | None:
        content = [
            self._entry(token.token_id, token.logprob)
            | {"top_logprobs": [self._entry(token_id, logprob) for token_id, logprob in token.top[: self._top]]}
            for token in tokens
        ]
        return json.dumps({"content": content}, ensure_ascii=False, allow_nan=False) if content else None

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelling = self._vocabulary.spelling(token_id)
        return {
            "token": (spelling or b"").decode(errors="replace"),
            "logprob": finite_logprob(logprob),
            "bytes": None if spelling is None else list(spelling),
        }
