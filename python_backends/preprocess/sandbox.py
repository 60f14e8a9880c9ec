"""A Jinja environment in which a template can neither reach Python nor loop or allocate without bound.

The work of one rendering is counted in characters and steps: every loop iteration, call, output, concatenation and new
container is charged to a `Budget` (where Jinja has no hook, by rewriting the template's syntax tree). What could
allocate much in one step, before it can be charged, is either charged from its arguments or not offered at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

from jinja2 import Environment, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import loopcontrols
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

# fmt: off
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "items", "last",
    "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe",
    "select", "selectattr", "sort", "string", "title", "trim", "unique", "upper",
)
_STRING_METHODS = frozenset((
    "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "islower", "isspace", "isupper",
    "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rfind", "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip", "title", "upper",
))
# fmt: on
_DICT_METHODS = frozenset(("get", "items", "keys", "values"))
_LARGEST_NUMBER = 2**63
_LONGEST_SEPARATOR = 16

_Value = TypeVar("_Value")


class BudgetExceededError(TemplateError):
    """The template did more work, or took longer, than its budget allows."""


class Budget:
    """Counts the work of one rendering, in characters and steps, and watches the clock."""

    def __init__(self, steps: int, seconds: float) -> None:
        self._left = steps
        self._deadline = time.monotonic() + seconds

    def charge(self, steps: int) -> None:
        """Take `steps` from the budget.

        Raises:
            BudgetExceededError: nothing is left of it, or of the time.
        """
        self._left -= steps
        if self._left < 0 or time.monotonic() > self._deadline:
            raise BudgetExceededError("the template does too much work")

    def weigh(self, value: Any) -> None:
        """Charge a value's size as text: characters of strings, and one for every other value inside it."""
        if isinstance(value, str):
            self.charge(1 + len(value))
        elif isinstance(value, dict):
            self.charge(1)
            for key, item in value.items():
                self.weigh(key)
                self.weigh(item)
        elif isinstance(value, list | tuple):
            self.charge(1)
            for item in value:
                self.weigh(item)
        else:
            self.charge(1)


_budget: ContextVar[Budget] = ContextVar("budget of the rendering in this thread")


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Charge the renderings inside the block to `budget`."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment of chat templates, with the settings, filters and globals that transformers gives them.

    Left out: filters that no chat template needs, `format` and `%` on strings, repeated strings and lists, and powers.
    """

    intercepted_binops = frozenset(("+", "*", "%", "**"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], finalize=_finalize)
        self.filters = {name: _charged(FILTERS[name]) for name in _FILTERS}
        self.filters["join"] = _join
        self.filters["tojson"] = _tojson
        safe_range = self.globals["range"]
        self.globals.clear()
        self.globals |= {"range": safe_range, "dict": _new_dict, "namespace": _TemplateNamespace}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _budget.get()
        receiver = getattr(obj, "__self__", None)
        budget.charge(_size(receiver) if isinstance(receiver, str) else 1)
        if isinstance(receiver, str) and obj.__name__ == "replace":
            _charge_replace(receiver, *args)
        result = super().call(context, obj, *args, **kwargs)
        # A container may hold another one twice: without its full weight, forty of them would stand for 2^40 values.
        if obj is _new_dict or obj == self.keep:
            budget.weigh(result)
        else:
            budget.charge(_size(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(side, int | float) and abs(side) < _LARGEST_NUMBER for side in (left, right))
        if not numbers and operator != "+":
            raise SecurityError(f"the operator {operator} is for numbers below 2^63 here")
        if operator == "**":
            raise SecurityError("powers are not available here")
        _budget.get().charge(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> None:
        """Jinja would put a format method of its own in place; none is offered."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in _STRING_METHODS
        if isinstance(obj, dict):
            return attr in _DICT_METHODS
        return isinstance(obj, LoopContext | Namespace) and super().is_safe_attribute(obj, attr, value)

    def tick(self, steps: int) -> str:
        """Called by the rewritten template at the start of every loop body and macro."""
        _budget.get().charge(steps)
        return ""

    def keep(self, value: _Value) -> _Value:
        """Called by the rewritten template around new strings and containers: `call` charges what it returns."""
        return value

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Metering(self).visit(tree)
        return tree


class _Metering(NodeTransformer):
    """Puts calls of `tick` and `keep` into a template's syntax tree."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def _call(self, method: str, argument: nodes.Expr) -> nodes.Call:
        call = nodes.Call(nodes.EnvironmentAttribute(method), [argument], [], None, None)
        return call.set_environment(self._environment).set_lineno(argument.lineno or 1)  # type: ignore[return-value]

    def _tick_body(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        characters = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._call("tick", nodes.Const(1 + characters, lineno=node.lineno))))
        return node

    visit_For = visit_Macro = visit_CallBlock = _tick_body

    def _keep_result(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        stored = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return node if stored or _is_constant(node) else self._call("keep", node)

    visit_Concat = visit_List = visit_Dict = visit_Tuple = _keep_result


def _is_constant(node: nodes.Expr) -> bool:
    """Whether a value is written out in the template: it is as large as the source that spells it."""
    try:
        node.as_const()
    except nodes.Impossible:
        return False
    return True


class _TemplateNamespace(Namespace):
    """`namespace()`, without a text form of its contents: it would not be charged."""

    def __repr__(self) -> str:
        return "<namespace>"


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter `function`, with its arguments and its result charged."""

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        budget = _budget.get()
        budget.charge(sum(map(_size, args)))
        if function is FILTERS["replace"]:
            _charge_replace(*args[1:])  # the first one is Jinja's evaluation context
        result = function(*args, **kwargs)
        budget.charge(_size(result))
        return result

    return charged


def _charge_replace(text: Any, old: Any = "", new: Any = "", *_: Any) -> None:
    _budget.get().charge(str(text).count(str(old)) * len(str(new)))


def _size(value: Any) -> int:
    return 1 + len(value) if isinstance(value, str | list | tuple | dict | range) else 1


def _join(values: Any, separator: str = "", attribute: str | None = None) -> str:
    items = [item[attribute] for item in values] if attribute else list(values)
    _budget.get().weigh(items)
    _budget.get().charge(len(items) * len(separator))
    return separator.join(map(str, items))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers' filter of this name writes it: without HTML escapes, keys in their order."""
    if len("".join(separators or ())) + (indent or 0) > _LONGEST_SEPARATOR:
        raise SecurityError("tojson: separators and indent are too long")
    _budget.get().weigh(value)
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    _budget.get().charge(len(text))
    return text


@pass_context
def _finalize(_context: Context, value: Any) -> Any:
    _budget.get().weigh(value)
    return value


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # the server's local time, as transformers does
