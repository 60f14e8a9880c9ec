"""Finding stop strings in text that arrives in pieces (Aho and Corasick, 1975)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopFilter:
    """Lets text through until a stop string is complete, and never lets out a part of that stop string.

    The stop string that is complete first wins; of several that end at the same character, the longest. So the result
    does not depend on how the text was cut into pieces. Time is linear in the text, whatever the stop strings are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` may be empty; each string has at least one character."""
        # A state is a prefix of some stop string: its depth is the prefix's length.
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._fallback = [0]  # the longest proper suffix of the state that is a state too
        self._complete = [0]  # length of the longest stop string that the state ends with
        for stop in stops:
            self._add(stop)
        self._link()
        self._state = 0
        self._held = ""
        self._matched = False

    @property
    def matched(self) -> bool:
        """Whether a stop string was found. Text that is pushed afterwards is swallowed."""
        return self._matched

    def push(self, text: str) -> str:
        """The text that is certainly not part of a stop string: what was held back, then what is new."""
        if self._matched:
            return ""
        if not self._next[0]:
            return text
        buffer = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            self._step(character)
            if length := self._complete[self._state]:
                self._matched = True
                self._held = ""
                return buffer[: end - length]
        safe = len(buffer) - self._depth[self._state]
        self._held = buffer[safe:]
        return buffer[:safe]

    def flush(self) -> str:
        """What was held back: at the end it is no stop string after all."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _step(self, character: str) -> None:
        state = self._state
        while state and character not in self._next[state]:
            state = self._fallback[state]
        self._state = self._next[state].get(character, 0)

    def _add(self, stop: str) -> None:
        state = 0
        for character in stop:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._fallback.append(0)
                self._complete.append(0)
            state = self._next[state][character]
        self._complete[state] = len(stop)

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for character, child in self._next[state].items():
                fallback = self._fallback[state]
                while fallback and character not in self._next[fallback]:
                    fallback = self._fallback[fallback]
                self._fallback[child] = self._next[fallback].get(character, 0)
                self._complete[child] = self._complete[child] or self._complete[self._fallback[child]]
                queue.append(child)
