"""Answers of the running server equal those of transformers, for every stored prompt of both checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from omni_client import OmniClient
from tokenizers import Tokenizer

from python_backends.engine_folder import EngineFolder
from tests.parity.prompts import PROMPTS, Prompt
from tests.parity.references import Reference
from tests.server.asking import ask, tokens_of
from tests.server.conftest import start


class Checkpoint:
    """A server of one checkpoint, and what transformers answered for it."""

    def __init__(self, name: str, client: OmniClient, engines: Path) -> None:
        self.client = client
        self.reference = Reference.load(name)
        self.tokenizer = Tokenizer.from_file(str(EngineFolder.open(engines).file("tokenizer.json")))

    def spelled(self, token_ids: tuple[int, ...]) -> list[str]:
        return [self.tokenizer.decode([token], skip_special_tokens=False) for token in token_ids]


@pytest.fixture(scope="module")
def small(small_engines: Path, grpc_url: str) -> Iterator[Checkpoint]:
    with OmniClient(grpc_url) as client:
        yield Checkpoint("small", client, small_engines)


@pytest.fixture(scope="module")
def wide(wide_engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkpoint]:
    server = start(wide_engines, tmp_path_factory.mktemp("wide") / "tritonserver.log")
    url = f"grpc://{server.config.address}:{server.config.grpc_port}"
    with server, OmniClient(url) as client:
        yield Checkpoint("wide", client, wide_engines)


def check(checkpoint: Checkpoint, prompt: Prompt) -> None:
    expected = checkpoint.reference.answers[prompt.name]
    answer = ask(checkpoint.client, prompt, logprobs=0)
    certain = checkpoint.reference.certain_steps(prompt.name)
    found = [token for token, _ in tokens_of(answer)]
    assert found[:certain] == checkpoint.spelled(expected.tokens)[:certain]
    if certain == len(expected.margins):
        assert answer.text == expected.text
        assert answer.finish_reason == expected.finish_reason
        assert answer.usage is not None and answer.usage.completion_tokens == len(expected.tokens)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)
def test_the_small_checkpoint_answers_as_transformers_does(small: Checkpoint, prompt: Prompt) -> None:
    check(small, prompt)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)
def test_the_wide_checkpoint_answers_as_transformers_does(wide: Checkpoint, prompt: Prompt) -> None:
    check(wide, prompt)
