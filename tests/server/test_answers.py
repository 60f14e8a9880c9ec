"""What a client sees of an answer: pieces, stop strings, log-probabilities, usage, both protocols."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from omni_client import GenerateRequest, OmniClient, Sampling

from tests.parity.prompts import PROMPTS, Prompt
from tests.server.asking import ask, request_of
from tests.server.raw import infer

HELLO = next(prompt for prompt in PROMPTS if prompt.name == "hello")
CHINESE = next(prompt for prompt in PROMPTS if prompt.name == "chinese")
EVERYTHING = next(prompt for prompt in PROMPTS if prompt.name == "all_kinds_with_sound")
LONG = {"max_tokens": 48, "ignore_eos": True}


def test_an_answer_comes_in_several_pieces_and_ends_with_reason_and_usage(client: OmniClient) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=256, ignore_eos=True)
    with client.stream(request_of(HELLO, sampling)) as stream:
        pieces = list(stream)
    assert len(pieces) > 2
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == "length"
    usage = pieces[-1].usage
    assert usage is not None and usage.completion_tokens == 256
    assert usage.prompt_tokens == usage.text_tokens > 0
    assert {"prompt", "queue", "prefill", "decode"} <= set(usage.times_ms)


def test_without_streaming_there_is_exactly_one_response_with_the_same_text(grpc_url: str) -> None:
    question = {"text_input": "Hello! Who are you?", "max_tokens": 64, "ignore_eos": True}
    whole, streamed = infer(grpc_url, question), infer(grpc_url, {**question, "streaming": True})
    assert whole.pieces == 1
    assert whole.text == streamed.text
    assert whole.finish_reason == streamed.finish_reason == "length"


@pytest.mark.parametrize("prompt", [HELLO, CHINESE, EVERYTHING], ids=lambda prompt: prompt.name)
def test_http_and_grpc_give_the_same_answer(grpc_url: str, http_url: str, prompt: Prompt) -> None:
    with OmniClient(grpc_url) as grpc, OmniClient(http_url) as http:
        over_grpc, over_http = ask(grpc, prompt, **LONG), ask(http, prompt, **LONG)
    assert over_grpc.text == over_http.text
    assert over_http.usage is not None and over_grpc.usage is not None
    assert over_http.usage.completion_tokens == over_grpc.usage.completion_tokens == 48
    assert over_http.usage.prompt_tokens == over_grpc.usage.prompt_tokens


def test_tritons_generate_route_answers_with_plain_json(http_url: str) -> None:
    body = {"text_input": "Hello! Who are you?", "max_tokens": 8, "ignore_eos": True}
    answer = httpx.post(f"{http_url}/v2/models/omni/generate", json=body).json()
    assert isinstance(answer["text_output"], str)
    assert answer["finish_reason"] == "length"
    assert json.loads(answer["usage"])["completion_tokens"] == 8


def test_the_answer_ends_before_a_stop_string_and_never_shows_a_part_of_it(client: OmniClient) -> None:
    whole = ask(client, HELLO, **LONG).text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    with client.stream(request_of(HELLO, Sampling(temperature=0.0, stop=(stop,), max_tokens=48, ignore_eos=True))) as s:
        pieces = list(s)
    text = "".join(piece.text for piece in pieces)
    assert text == whole[: whole.index(stop)]
    assert pieces[-1].finish_reason == "stop"
    assert pieces[-1].usage is not None and pieces[-1].usage.completion_tokens < 48


def test_a_stop_string_also_ends_an_answer_in_one_response(client: OmniClient) -> None:
    whole = ask(client, HELLO, **LONG).text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    request = request_of(HELLO, Sampling(temperature=0.0, stop=(stop,), max_tokens=48, ignore_eos=True))
    answer = client.generate(request)
    assert answer.text == whole[: whole.index(stop)]
    assert answer.finish_reason == "stop"


def test_logprobs_spell_the_answer_and_are_finite(client: OmniClient) -> None:
    answer = ask(client, HELLO, logprobs=3, **LONG)
    assert answer.logprobs is not None
    entries = answer.logprobs["content"]
    assert len(entries) == 48
    for entry in entries:
        assert -1e4 <= entry["logprob"] <= 0
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == pytest.approx(entry["logprob"])  # greedy takes the best


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(client: OmniClient) -> None:
    drawn = {"temperature": 1.5, **LONG}
    first, again = ask(client, HELLO, seed=3, **drawn), ask(client, HELLO, seed=3, **drawn)
    other = ask(client, HELLO, seed=4, **drawn)
    assert first.text == again.text != other.text


def test_usage_counts_the_tokens_of_every_modality(client: OmniClient) -> None:
    usage = ask(client, EVERYTHING).usage
    assert usage is not None
    kinds = (usage.text_tokens, usage.image_tokens, usage.audio_tokens, usage.video_tokens)
    assert all(count > 0 for count in kinds)
    assert usage.prompt_tokens == sum(kinds)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_an_answer_of_many_pieces_never_splits_a_character(client: OmniClient) -> None:
    drawn = {"temperature": 2.0, "seed": 11, "max_tokens": 200, "ignore_eos": True}
    answer = ask(client, CHINESE, logprobs=0, **drawn)
    assert answer.logprobs is not None
    spelled = b"".join(bytes(entry["bytes"] or ()) for entry in answer.logprobs["content"])
    whole = client.generate(request_of(CHINESE, Sampling(**drawn)))
    assert answer.text == whole.text
    assert len(spelled) > 0


def test_request_ids_may_be_repeated_at_the_same_time(client: OmniClient) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=32, ignore_eos=True)
    request = GenerateRequest(text=HELLO.text, sampling=sampling, request_id="same")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(client.generate, [request] * 4))
    assert {answer.text for answer in answers} == {ask(client, HELLO, max_tokens=32, ignore_eos=True).text}
