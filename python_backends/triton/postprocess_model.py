"""The Triton model `postprocess`: chunks of tokens in, pieces of text out.

It runs once for each chunk of the thinker and answers with no response or one. Here a client that left is noticed
(Triton does not tell the running thinker), and the thinker is told to stop.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from python_backends.engine_folder import EngineFolder
from python_backends.postprocess.detokenizer import Vocabulary
from python_backends.postprocess.stream import Piece, ThinkerChunk
from python_backends.postprocess.table import StreamTable
from python_backends.triton.lost_streams import LostStreams
from python_backends.triton.parameters import model_parameters, refuse_unknown
from python_backends.triton.responses import error_sentence, finish, send, send_error, send_error_sentence
from python_backends.triton.tensors import RequestReader, string_tensor, tensor
from python_backends.wire import response_spec_from_json, thinker_usage_from_json, token_logprobs_from_json

MAX_REMEMBERED = 1024

logger = logging.getLogger(__name__)


class PostprocessModel:
    """See the module."""

    def initialize(self, args: Mapping[str, str]) -> None:
        refuse_unknown(model_parameters(args))
        self._failed: OrderedDict[str, str] = OrderedDict()
        self._abandoned: OrderedDict[str, None] = OrderedDict()
        self._lost = LostStreams(self._give_up)
        self._streams = StreamTable(Vocabulary.from_file(EngineFolder.open().file("tokenizer.json")))

    def finalize(self) -> None:
        self._lost.close()

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            reader = RequestReader(request)
            try:
                key = reader.text("request_key")
            except Exception as error:  # only a client that calls this model itself
                send_error(sender, error)
                continue
            last = reader.string("finish_reason") is not None
            self._lost.seen(key, float(reader.required("sent_at")[0]), last)
            if request.is_cancelled():
                self._abandon(key)
                finish(sender)
                continue
            try:
                self._answer(sender, key, reader)
            except Exception as error:
                self._abandon(key)
                self._failed[key] = error_sentence(error)
                if len(self._failed) > MAX_REMEMBERED:
                    self._failed.popitem(last=False)
            self._end_failed(sender, key, last)

    def _answer(self, sender: Any, key: str, reader: RequestReader) -> None:
        if failure := reader.string("error"):
            self._streams.drop(key)
            self._failed[key] = failure.decode()
        if key in self._failed:
            return
        outcome = self._streams.push(read_chunk(key, reader))
        for piece in outcome.pieces:
            send(sender, _tensors(piece))
        if outcome.stop_thinker:
            stop_thinker(key)

    def _end_failed(self, sender: Any, key: str, last: bool) -> None:
        """Finish the chunk. An error waits for the thinker's last chunk.

        Triton never ends an ensemble request whose later step fails while an earlier one still responds.
        """
        if last and key in self._failed:
            send_error_sentence(sender, self._failed.pop(key))
        else:
            finish(sender)

    def _give_up(self, key: str) -> None:
        logger.error("the chunks of %s no longer arrive: the thinker is told to stop", key)
        self._abandon(key)

    def _abandon(self, key: str) -> None:
        """Forget a stream and stop the thinker, once: chunks that were on their way may still come by the dozen."""
        if key in self._abandoned:
            return
        self._abandoned[key] = None
        if len(self._abandoned) > MAX_REMEMBERED:
            self._abandoned.popitem(last=False)
        self._streams.drop(key)
        try:
            stop_thinker(key)
        except Exception:
            logger.exception("the thinker could not be told to stop %s", key)


def read_chunk(key: str, reader: RequestReader) -> ThinkerChunk:
    """One response of the thinker."""
    ids = reader.array("output_ids")
    spec, logprobs = reader.string("response_spec"), reader.string("output_logprobs")
    reason, usage = reader.string("finish_reason"), reader.string("thinker_usage")
    return ThinkerChunk(
        key=key,
        index=int(reader.required("chunk_index")[0]),
        spec=None if spec is None else response_spec_from_json(spec.decode()),
        token_ids=() if ids is None else tuple(ids.tolist()),
        logprobs=() if logprobs is None else token_logprobs_from_json(logprobs.decode()),
        finish_reason=None if reason is None else reason.decode(),
        usage=None if usage is None else thinker_usage_from_json(usage.decode()),
    )


def stop_thinker(key: str) -> None:
    """Ask the thinker to give up a sequence; it does not matter whether it still runs."""
    request = pb_utils.InferenceRequest(
        model_name="thinker",
        requested_output_names=[],
        inputs=[string_tensor("request_key", key), tensor("stop", np.array([True]))],
    )
    for response in request.exec(decoupled=True):
        if response.has_error():
            logger.error("the thinker refused to stop %s: %s", key, response.error().message())


def _tensors(piece: Piece) -> list[Any]:
    tensors = [string_tensor("text_output", piece.text)]
    if piece.finish_reason is not None:
        tensors.append(string_tensor("finish_reason", piece.finish_reason))
    if piece.usage is not None:
        tensors.append(string_tensor("usage", piece.usage.to_json()))
    if piece.logprobs_json is not None:
        tensors.append(string_tensor("logprobs", piece.logprobs_json))
    return tensors
