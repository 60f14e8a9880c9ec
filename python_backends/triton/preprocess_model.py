"""The Triton model `preprocess`: the public inputs in, prompt and media tensors out.

The model is decoupled so that `execute` never waits: short prompts of text alone are answered at once, all others
go to worker threads that decode (a few at a time; the decoders release the interpreter lock) and then wait for the
encoders.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from python_backends.engine_folder import EngineFolder
from python_backends.errors import Overloaded, RequestCancelled
from python_backends.messages import OmniRequest, PreparedRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.preprocessor import Preprocessor
from python_backends.triton.encoder_calls import encode
from python_backends.triton.parameters import model_parameters, take_int
from python_backends.triton.responses import send_error, send_last
from python_backends.triton.tensors import RequestReader, scalar_tensor, string_tensor, tensor
from python_backends.wire import request_cost_to_json, response_spec_to_json

INLINE_BYTES = 16 * 1024  # of text; more takes milliseconds to parse and tokenise


class PreprocessModel:
    """See the module."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = model_parameters(args)
        workers = take_int(parameters, "media_workers", 8)
        self._decoding = threading.Semaphore(take_int(parameters, "decode_workers", 2))
        self._max_pending = take_int(parameters, "max_pending_media", 64)
        self._preprocessor = Preprocessor(EngineFolder.open(), Limits.from_parameters(parameters))
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="media")
        self._pending = 0
        self._lock = threading.Lock()
        self._preprocessor.prepare(OmniRequest(text_input=b"warm-up", max_tokens=1))

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                omni = read_request(RequestReader(request))
                if is_short_text(omni):
                    send_last(sender, prompt_tensors(self._preprocessor.prepare(omni)))
                else:
                    self._submit(sender, omni)
            except Exception as error:
                send_error(sender, error)

    def finalize(self) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._preprocessor.close()

    def _submit(self, sender: Any, omni: OmniRequest) -> None:
        with self._lock:
            if self._pending >= self._max_pending:
                waiting = f"{self._pending} requests with media or long texts are waiting"
                raise Overloaded(f"preprocess: {waiting}; allowed: {self._max_pending}")
            self._pending += 1
        self._workers.submit(self._work, sender, omni)

    def _work(self, sender: Any, omni: OmniRequest) -> None:
        try:
            with self._decoding:
                if sender.is_cancelled():
                    raise RequestCancelled("the client cancelled before its media were read")
                prepared = self._preprocessor.prepare(omni, sender.is_cancelled)
            if sender.is_cancelled():
                raise RequestCancelled("the client cancelled before its media were encoded")
            embeddings = encode(prepared)
            prepared.response.times_ms.update(embeddings.times_ms)
            send_last(sender, prompt_tensors(prepared) + embeddings.tensors)
        except Exception as error:
            send_error(sender, error)
        finally:
            with self._lock:
                self._pending -= 1


def read_request(reader: RequestReader) -> OmniRequest:
    """The public inputs as they came; values are validated by the preprocessor."""
    return OmniRequest(
        text_input=reader.string("text_input"),
        messages=reader.string("messages"),
        image=reader.strings("image"),
        audio=reader.strings("audio"),
        video=reader.strings("video"),
        max_tokens=reader.integer("max_tokens"),
        temperature=reader.number("temperature"),
        top_k=reader.integer("top_k"),
        top_p=reader.number("top_p"),
        repetition_penalty=reader.number("repetition_penalty"),
        seed=reader.integer("seed"),
        stop=reader.strings("stop"),
        ignore_eos=reader.flag("ignore_eos"),
        logprobs=reader.integer("logprobs"),
        tools=reader.string("tools"),
        streaming=reader.flag("streaming"),
        use_audio_in_video=reader.flag("use_audio_in_video"),
    )


def is_short_text(request: OmniRequest) -> bool:
    """Whether the request is a matter of microseconds: a little text and no media, however they are written."""
    if request.image or request.audio or request.video:
        return False
    if sum(len(text or b"") for text in (request.text_input, request.messages, request.tools)) > INLINE_BYTES:
        return False
    return request.messages is None or _all_text(request.messages)


def _all_text(messages: bytes) -> bool:
    try:
        turns = json.loads(messages)
    except (ValueError, RecursionError):
        return True  # it will be refused
    contents = [turn.get("content") for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return all(isinstance(part, dict) and part.get("type") == "text" for part in parts)


def prompt_tensors(prepared: PreparedRequest) -> list[Any]:
    """The thinker's inputs, less the embeddings."""
    sampling = prepared.sampling
    tensors = [
        string_tensor("request_key", prepared.key),
        tensor("input_ids", prepared.input_ids),
        tensor("position_ids", prepared.position_ids),
        scalar_tensor("rope_delta", prepared.rope_delta, np.int32),
        scalar_tensor("request_output_len", sampling.max_tokens, np.int32),
        scalar_tensor("temperature", sampling.temperature, np.float32),
        scalar_tensor("runtime_top_k", sampling.top_k, np.int32),
        scalar_tensor("runtime_top_p", sampling.top_p, np.float32),
        scalar_tensor("repetition_penalty", sampling.repetition_penalty, np.float32),
        tensor("seed", np.array([sampling.seed], dtype=np.uint64)),
        tensor("ignore_eos", np.array([sampling.ignore_eos], dtype=np.bool_)),
        string_tensor("traffic_class", prepared.traffic_class.value),
        string_tensor("request_cost", request_cost_to_json(prepared.cost)),
        string_tensor("response_spec", response_spec_to_json(prepared.response)),
    ]
    if sampling.logprobs is not None:
        tensors.append(scalar_tensor("num_logprobs", sampling.logprobs, np.int32))
    return tensors
