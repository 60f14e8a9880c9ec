"""`thinker.onnx` in ONNX Runtime: fills the inputs of a step and runs it over the KV cache in place.

What does not change from step to step stays bound: there is one binding for each number of batch rows, with all keys
and values bound as input and output at once. The big inputs are written into buffers that are made once.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from python_backends.config import OmniConfig
from python_backends.engine.kv_cache import KVCache
from python_backends.engine.rope import MRope
from python_backends.engine.scheduler import StepRow
from python_backends.messages import FloatArray


class ThinkerGraph:
    """Runs steps of at most `max_step_tokens` tokens on the slots of `cache`, whose sizes must be the graph's."""

    def __init__(
        self, graph: Path, embeddings: Path, config: OmniConfig, cache: KVCache, max_step_tokens: int, threads: int
    ) -> None:
        """`threads` 0 lets ONNX Runtime choose.

        Raises:
            Exception: from ONNX Runtime, if the graph cannot be loaded.
        """
        text = config.text
        self._taps = len(config.vision.deepstack_visual_indexes)
        self._hidden = text.hidden_size
        self._cache = cache
        self._session = _session(graph, threads)
        self._bindings: dict[int, Any] = {}
        self._table: FloatArray = np.asarray(np.load(embeddings, mmap_mode="r"))
        self._rope = MRope(text.head_dim, text.rope_theta, text.mrope_section)
        half = text.head_dim // 2
        self._embeds = np.empty((max_step_tokens, text.hidden_size), np.float32)
        self._cos = np.empty((1, max_step_tokens, half), np.float32)
        self._sin = np.empty((1, max_step_tokens, half), np.float32)
        self._deepstack = np.empty(self._taps * max_step_tokens * text.hidden_size, np.float32)
        self._no_deepstack = np.zeros((self._taps, 1, 1), np.float32)
        self._logits = np.empty((cache.shape.slots, text.vocab_size), np.float32)

    def run(self, rows: Several[StepRow]) -> FloatArray:
        """Compute the rows' pending tokens; logits [drawing rows, vocabulary], in the order of the rows.

        The result is a view of a buffer that the next step overwrites.

        Raises:
            Exception: from ONNX Runtime; the cache of these rows is undefined then.
        """
        draws = sum(row.draws for row in rows)
        logits = self._logits[: max(draws, 1)]
        inputs = self._inputs(rows)
        binding = self._binding(len(inputs["query_seqlens"]))
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        binding.bind_ortvalue_output("logits", ort.OrtValue.ortvalue_from_numpy(logits))
        self._session.run_with_iobinding(binding)
        return logits[:draws]

    def _inputs(self, rows: Several[StepRow]) -> dict[str, NDArray[Any]]:
        total = sum(row.count for row in rows)
        batch = max(row.slot for row in rows) + 1
        longest = max(row.count for row in rows)
        ids = np.concatenate([row.sequence.token_ids[row.start : row.stop] for row in rows])
        positions = np.concatenate([row.sequence.positions(row.start, row.stop) for row in rows], axis=1)
        embeds, cos, sin = self._embeds[:total], self._cos[:, :total], self._sin[:, :total]
        np.take(self._table, ids, axis=0, out=embeds, mode="clip")
        self._rope.rows(positions, cos[0], sin[0])

        pad = np.zeros((batch, longest), np.int64)
        unpad = np.empty(total, np.int64)
        new = np.zeros(batch, np.int32)
        cached = np.ones(batch, np.int32)  # after the step; a row without tokens claims one, which nobody reads
        drawing = []
        deepstack: FloatArray | None = None
        at = 0
        for row in rows:
            span = np.arange(at, at + row.count)
            pad[row.slot, : row.count] = span
            unpad[at : at + row.count] = np.arange(row.slot * longest, row.slot * longest + row.count)
            new[row.slot], cached[row.slot] = row.count, row.stop
            if row.draws:
                drawing.append(at + row.count - 1)
            if row.sequence.holds_media and row.start < row.sequence.prompt_length:
                deepstack = self._fill_media(row, embeds[at : at + row.count], deepstack, at, total)
            at += row.count
        inputs: dict[str, NDArray[Any]] = {
            "inputs_embeds": embeds,
            "rope_cos": cos,
            "rope_sin": sin,
            "pad_index": pad,
            "unpad_index": unpad,
            "query_seqlens": new,
            "seqlens_k": cached - np.int32(1),
            "total_sequence_length": np.array(max(int(cached.max()), longest), np.int32),
            "logit_index": np.array(drawing or [0], np.int64),
        }
        if self._taps:
            inputs["deepstack"] = self._no_deepstack if deepstack is None else deepstack
        return inputs

    def _fill_media(
        self, row: StepRow, embeds: FloatArray, deepstack: FloatArray | None, at: int, total: int
    ) -> FloatArray | None:
        """Overwrite the placeholders' embeddings; the step's deepstack rows, made on first need."""
        sequence, hidden = row.sequence, self._hidden
        if sequence.audio is not None:
            places, values = sequence.audio.between(row.start, row.stop)
            embeds[places - row.start] = values
        if sequence.vision is not None:
            places, values = sequence.vision.between(row.start, row.stop)
            embeds[places - row.start] = values[:, :hidden]
            if len(places) and self._taps:
                if deepstack is None:
                    deepstack = self._deepstack[: self._taps * total * hidden].reshape(self._taps, total, hidden)
                    deepstack.fill(0)
                features = values[:, hidden:].reshape(len(places), self._taps, hidden)
                deepstack[:, places - row.start + at] = features.transpose(1, 0, 2)
        return deepstack

    def _binding(self, batch: int) -> Any:
        """The binding for slots 0..batch-1, with their keys and values bound."""
        binding = self._bindings.get(batch)
        if binding is None:
            binding = self._bindings[batch] = self._session.io_binding()
            for layer in range(self._cache.shape.layers):
                for part, arrays in (("key", self._cache.keys), ("value", self._cache.values)):
                    value = ort.OrtValue.ortvalue_from_numpy(arrays[layer][:batch])
                    binding.bind_ortvalue_input(f"past_{part}_{layer}", value)
                    binding.bind_ortvalue_output(f"present_{part}_{layer}", value)
        return binding


def _session(graph: Path, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # every mix of rows is a new set of shapes: a memory plan for each would only pile up
    options.enable_mem_pattern = False
    # Waiting threads sleep: spinning ones would take the cores from preprocessing and the encoders.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
