"""Chat templates render as in transformers, and no template or message can run or grow without end."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.template import ChatTemplate, ChatTemplateError
from tests.unit.prompt_engine import TEMPLATE

LIMITS = Limits(max_prompt_chars=20_000)
COMPILED = ChatTemplate(TEMPLATE, {}, LIMITS)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


def render(source: str, turns: list[dict[str, Any]] = HELLO, tools: list[dict[str, Any]] | None = None) -> str:
    return ChatTemplate(source, {"eos_token": "<|im_end|>"}, LIMITS).render(turns, tools or [], "messages")


def test_a_turn_is_followed_by_the_beginning_of_the_answer() -> None:
    assert render(TEMPLATE) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_media_parts_become_placeholders_in_their_places() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image", "image": ""}, {"type": "text", "text": "b"}]
    assert "a<|vision_start|><|image_pad|><|vision_end|>b" in render(TEMPLATE, [{"role": "user", "content": content}])


def test_tools_calls_and_results_are_written_as_json_with_keys_in_order() -> None:
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "z": "<é>", "a": 1}}}
    turns = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": {"q": "é"}}}]},
        {"role": "tool", "content": "found"},
    ]
    prompt = render(TEMPLATE, turns, [tool])
    assert json.dumps(tool, ensure_ascii=False) in prompt
    assert '<tool_call>\n{"name": "find", "arguments": {"q": "é"}}\n</tool_call>' in prompt
    assert "<tool_response>\nfound\n</tool_response>" in prompt


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        (
            "{% for m in messages %}\n  {% if m.role == 'user' %}\nx\n  {% endif %}\n{% endfor %}",
            "x\n",
        ),  # trimmed blocks
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),  # loop controls
        ("{{ {'b': '<a>', 'a': [1, none]} | tojson }}", '{"b": "<a>", "a": [1, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}", '{\n  "a": 2,\n  "b": 1\n}'),
        ("{{ strftime_now('%%') }}{{ eos_token }}{{ tools is none }}", "%<|im_end|>True"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{{ dict(a=1).get('a') }}{{ messages[::-1] | map(attribute='role') | join('-') }}", "1user"),
        ("{{ 'a</think>b'.split('</think>')[-1].lstrip() ~ 'c' | upper }}", "bC"),
        ("{% macro twice(x) %}{{ x + x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{{ ['x', 'y'] | replace('x', 'z') }}{{ 'aXb'.replace('X', '-') }}", "['z', 'y']a-b"),
        ("{{ 7 * 6 }} {{ 7 % 4 }} {{ 1 + 1.5 }} {{ [1] + [2] }}", "42 3 2.5 [1, 2]"),
    ],
)
def test_templates_are_read_by_the_conventions_of_transformers(source: str, prompt: str) -> None:
    assert render(source) == prompt


def test_what_the_template_refuses_is_told_in_its_own_words() -> None:
    with pytest.raises(InvalidRequest, match=r"messages: refused by the model's chat template \(no system turn\)"):
        render("{{ raise_exception('no system turn') }}")


@pytest.mark.parametrize("source", ["{{ messages[9].role }}", "{{ 1 / 0 }}", "{{ messages + 1 }}", "{% include 'x' %}"])
def test_a_template_that_fails_gives_an_error_and_no_prompt(source: str) -> None:
    with pytest.raises(InvalidRequest, match="refused by the model's chat template"):
        render(source)


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ x | center(9) }}", "{{ x | attr('y') }}", "{% for x in y %}", "{{ x | nothing }}"]
)
def test_a_template_that_cannot_be_compiled_is_refused_when_it_is_loaded(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="chat template, line 1"):
        ChatTemplate(source, {}, LIMITS)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{% set ns = namespace(_x=1) %}{{ ns._x + 1 }}",
        "{{ '%s' % 'x' }}",
        "{{ '{}'.format('x') }}",
        "{{ (1).to_bytes(1000000000, 'big') }}",
        "{{ messages.append(1) }}",
        "{{ self.__init__() }}",
        "{{ 'a'.encode() }}",
        "{{ [1] | tojson(indent=1000000) }}",
    ],
)
def test_python_is_out_of_a_templates_reach(source: str) -> None:
    with pytest.raises(InvalidRequest, match="refused by the model's chat template"):
        render(source)


DOUBLING = "{%% set ns = namespace(x=%s) %%}{%% for i in range(64) %%}{%% set ns.x = %s %%}{%% endfor %%}{{ ns.x %s }}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else '' }}{% endmacro %}{{ f(60) }}",
        "{% for i in messages recursive %}{{ loop(messages) }}{{ loop(messages) }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ 9 ** 999999999 }}",
        "{% set big %}{% for i in range(1500) %}0123456789{% endfor %}{% endset %}{{ big.replace('', big) }}",
        "{% set big %}{% for i in range(1500) %}0123456789{% endfor %}{% endset %}{{ big | replace('', big) }}",
        "{% set big %}{% for i in range(1500) %}0123456789{% endfor %}{% endset %}{{ big | list | join(big) }}",
        "{% for i in range(100000) %}0123456789{% endfor %}",
        DOUBLING % ("'a'", "ns.x ~ ns.x", ""),
        DOUBLING % ("'a'", "ns.x + ns.x", ""),
        DOUBLING % ("[1]", "ns.x + ns.x", "| length"),
        DOUBLING % ("1", "[ns.x, ns.x]", "== 1"),
        DOUBLING % ("1", "(ns.x, ns.x)", "| string"),
        DOUBLING % ("1", "{'a': ns.x, 'b': ns.x}", "| tojson"),
        DOUBLING % ("1", "dict(a=ns.x, b=ns.x)", "| tojson"),
        DOUBLING % ("9", "ns.x * ns.x", ""),
        DOUBLING % ("namespace(v=1)", "namespace(a=ns.x, b=ns.x)", "| string ~ raise_exception('harmless')"),
    ],
)
def test_no_template_loops_or_grows_without_end(source: str) -> None:
    with pytest.raises(InvalidRequest):
        render(source)


def test_a_template_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(InvalidRequest, match="takes too long to render"):
        render("{% for i in range(100) %}{% endfor %}")


def test_a_prompt_of_too_many_characters_is_refused_with_the_number() -> None:
    with pytest.raises(InvalidRequest, match=r"messages: a prompt of more than 20000 characters.*at most 20000"):
        render(TEMPLATE, [{"role": "user", "content": "x" * 20_001}])


def test_a_long_conversation_fits_into_the_budget_of_work() -> None:
    turns = [{"role": role, "content": "x" * 60} for role in ("user", "assistant")] * 90
    assert len(render(TEMPLATE, turns)) > 16_000


@given(st.text())
def test_text_passes_through_unchanged(text: str) -> None:
    assert text in COMPILED.render([{"role": "user", "content": text}], [], "messages")
