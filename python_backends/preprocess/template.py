"""The checkpoint's chat template: turns and tools → the prompt as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError, TemplateSyntaxError

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.sandbox import BoundedEnvironment, Budget, BudgetExceededError, spending

# Work per character of the largest prompt. A template loops over its turns a few times and passes texts on a few times.
_WORK_FACTOR = 32
# Far above any honest rendering (microseconds to milliseconds): the guard for what the count of work misses.
_SECONDS = 2.0


class ChatTemplateError(ValueError):
    """The checkpoint's chat template cannot be used."""


class ChatTemplate:
    """A compiled chat template. Thread-safe."""

    def __init__(self, source: str, variables: Mapping[str, str], limits: Limits) -> None:
        """Compile `source`; `variables` are the special tokens by name that templates may print.

        Raises:
            ChatTemplateError: the source is no Jinja, or uses what the sandbox does not offer.
        """
        try:
            self._template = BoundedEnvironment().from_string(source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(f"chat template, line {error.lineno}: {error.message}") from None
        self._variables = dict(variables)
        self._limits = limits

    def render(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], field: str) -> str:
        """The prompt, ending where the model's answer begins; `field` is the input that the turns came from.

        Raises:
            InvalidRequest: the template refuses the turns, or the prompt gets too long.
        """
        most = self._limits.max_prompt_chars
        pieces: list[str] = []
        length = 0
        budget = Budget(_WORK_FACTOR * most, _SECONDS)
        try:
            with spending(budget):
                for piece in self._template.generate(
                    messages=turns, tools=tools or None, add_generation_prompt=True, **self._variables
                ):
                    length += len(piece)
                    if length > most:
                        raise BudgetExceededError("the prompt is too long")
                    pieces.append(piece)
        except BudgetExceededError:
            found = f"a prompt of more than {most} characters, or one that takes too long to render"
            raise InvalidRequest(field, found, f"at most {most} characters") from None
        except TemplateError as error:
            raise _refusal(field, error.message or type(error).__name__) from None
        except Exception as error:  # a template is a program: it can raise anything that Python can
            raise _refusal(field, f"{type(error).__name__}: {error}") from None
        return "".join(pieces)


def _refusal(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(field, f"refused by the model's chat template ({reason[:200]})", "turns that it knows")
