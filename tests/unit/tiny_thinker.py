"""Thinkers of tiny random checkpoints, and what they should give: plain numpy in fp64, a whole prompt at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from build_engines.__main__ import main as build_engines
from python_backends.engine.base import GenerationRequest, TokenEvent
from python_backends.engine_folder import EngineFolder
from python_backends.messages import FloatArray, RequestCost, SamplingParams, TrafficClass
from tests.unit.tiny_checkpoint import config_json, random_tensors, token_id, write_checkpoint

Array = NDArray[np.float64]
IMAGE, VIDEO, AUDIO = (token_id(f"<|{kind}_pad|>") for kind in ("image", "video", "audio"))
PLAIN_IDS = 200  # ids below it are bytes: no placeholder and no end of turn among them
WAIT = 60


def thinker_config(**text: Any) -> dict[str, Any]:
    """A `config.json` with one deepstack tap; `text` overrides the decoder's settings."""
    config = config_json()
    config["thinker_config"]["text_config"] |= text
    return config


def thinker_tensors(config: Mapping[str, Any], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Weights scaled so that neither attention nor the router is blind or sees one thing only."""
    return {
        name: (tensor * (1.5 / math.sqrt(tensor.shape[-1]))).astype(tensor.dtype) if tensor.ndim == 2 else tensor
        for name, tensor in random_tensors(config, seed).items()
    }


def build_thinker(folder: Path, config: Mapping[str, Any], tensors: dict[str, NDArray[Any]]) -> EngineFolder:
    """The engine folder of a checkpoint with these settings and weights."""
    checkpoint = write_checkpoint(folder / "checkpoint", config, tensors)
    assert build_engines([str(checkpoint), "--out", str(folder / "engines")]) == 0
    return EngineFolder.open(folder / "engines" / "current")


def make_request(
    key: str,
    ids: NDArray[Any],
    max_tokens: int = 8,
    vision: FloatArray | None = None,
    audio: FloatArray | None = None,
    positions: NDArray[Any] | None = None,
    **sampling: Any,
) -> GenerationRequest:
    """A request; without `positions` those of plain text. It goes on after an end of turn unless told otherwise."""
    if positions is None:
        positions = np.tile(np.arange(len(ids)), (3, 1))
    return GenerationRequest(
        key=key,
        input_ids=ids.astype(np.int32),
        position_ids=positions.astype(np.int32),
        rope_delta=int(positions.max()) + 1 - len(ids) if positions.size else 0,
        sampling=SamplingParams(max_tokens, **({"ignore_eos": True} | sampling)),
        cost=RequestCost(len(ids), 0, 0, 0, max_tokens),
        traffic_class=TrafficClass.TEXT,
        vision_embeddings=vision,
        audio_embeddings=audio,
    )


def text_request(key: str, length: int, number: int, max_tokens: int = 8, **sampling: Any) -> GenerationRequest:
    ids = np.random.default_rng(number).integers(0, PLAIN_IDS, length)
    return make_request(key, ids, max_tokens, **sampling)


def media_request(
    key: str, number: int, hidden: int = 32, taps: int = 1, max_tokens: int = 8, **sampling: Any
) -> GenerationRequest:
    """Text, an image, a sound and a video, with positions that stand still, jump and differ by axis."""
    random = np.random.default_rng(number)
    text = [random.integers(0, PLAIN_IDS, 3) for _ in range(4)]
    media = [np.full(count, token) for token, count in ((IMAGE, 9), (AUDIO, 5), (VIDEO, 6))]
    ids = np.concatenate([text[0], media[0], text[1], media[1], text[2], media[2], text[3]])
    return make_request(
        key,
        ids,
        max_tokens,
        vision=random.standard_normal((15, hidden * (1 + taps)), dtype=np.float32),
        audio=random.standard_normal((5, hidden), dtype=np.float32),
        positions=np.sort(random.integers(0, 2 * len(ids), (3, len(ids))), axis=1),
        **sampling,
    )


class Listener:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[TokenEvent] = []
        self._ended = threading.Event()

    def __call__(self, event: TokenEvent) -> None:
        self.events.append(event)
        if event.finish_reason is not None:
            self._ended.set()

    def last(self) -> TokenEvent:
        """Wait for the last event."""
        assert self._ended.wait(WAIT), "the sequence did not end"
        return self.events[-1]

    def tokens(self) -> list[int]:
        """Wait for the end; all tokens."""
        self.last()
        return [token for event in self.events for token in event.token_ids]


def greedy_reference(
    config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], request: GenerationRequest
) -> tuple[list[int], Array]:
    """The most likely tokens and the logits [max_tokens, vocabulary] they were drawn from."""
    ids, positions = request.input_ids.tolist(), request.position_ids.astype(np.int64)
    logits = []
    for _ in range(request.sampling.max_tokens):
        logits.append(_forward(config, tensors, np.array(ids), positions, request)[-1])
        positions = np.concatenate([positions, np.full((3, 1), len(ids) + request.rope_delta)], axis=1)
        ids.append(int(np.argmax(logits[-1])))
    return ids[len(request.input_ids) :], np.stack(logits)


def _forward(
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    ids: NDArray[Any],
    positions: NDArray[Any],
    request: GenerationRequest,
) -> Array:
    text = config["thinker_config"]["text_config"]
    taps = len(config["thinker_config"]["vision_config"]["deepstack_visual_indexes"])
    hidden = text["hidden_size"]

    def weight(name: str) -> Array:
        return tensors[f"thinker.{name}.weight"].astype(np.float64)

    x = weight("model.embed_tokens")[ids]
    seen = np.flatnonzero((ids == IMAGE) | (ids == VIDEO))
    features = np.zeros((taps, len(ids), hidden))
    if request.vision_embeddings is not None:
        parts = np.split(request.vision_embeddings.astype(np.float64), 1 + taps, axis=1)
        x[seen] = parts[0]
        features[:, seen] = parts[1:]
    if request.audio_embeddings is not None:
        x[ids == AUDIO] = request.audio_embeddings
    for layer in range(text["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        normed = _norm(x, weight(f"{base}.input_layernorm"))
        query, key, value = (normed @ weight(f"{base}.self_attn.{part}_proj").T for part in "qkv")
        attended = _attend(
            _rotate(_norm_heads(query, weight(f"{base}.self_attn.q_norm")), positions, text),
            _rotate(_norm_heads(key, weight(f"{base}.self_attn.k_norm")), positions, text),
            value.reshape(len(ids), -1, text["head_dim"]),
        )
        x = x + attended @ weight(f"{base}.self_attn.o_proj").T
        normed = _norm(x, weight(f"{base}.post_attention_layernorm"))
        sparse = (layer + 1) % text.get("decoder_sparse_step", 1) == 0 and layer not in text.get("mlp_only_layers", ())
        x = x + (_experts(normed, f"{base}.mlp", weight, text) if sparse else _mlp(normed, f"{base}.mlp", weight))
        if layer < taps:
            x = x + features[layer]
    head = "model.embed_tokens" if text["tie_word_embeddings"] else "lm_head"
    return _norm(x, weight("model.norm")) @ weight(head).T


def _norm(x: Array, scale: Array) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale)


def _norm_heads(x: Array, scale: Array) -> Array:
    return _norm(x.reshape(len(x), -1, len(scale)), scale)


def _rotate(x: Array, positions: NDArray[Any], text: Mapping[str, Any]) -> Array:
    """Column by column: which of the three positions turns it, and how fast."""
    half = text["head_dim"] // 2
    section = text["rope_scaling"]["mrope_section"]
    result = x.copy()
    for column in range(half):
        axis = column % 3 if column < 3 * section[column % 3] else 0
        angle = (positions[axis] * 1e6 ** (-column / half))[:, None]
        first, second = x[:, :, column], x[:, :, column + half]
        result[:, :, column] = first * np.cos(angle) - second * np.sin(angle)
        result[:, :, column + half] = second * np.cos(angle) + first * np.sin(angle)
    return result


def _attend(query: Array, key: Array, value: Array) -> Array:
    group = query.shape[1] // key.shape[1]
    outputs = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // group].T / math.sqrt(query.shape[2])
        scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(shares / shares.sum(axis=1, keepdims=True) @ value[:, head // group])
    return np.concatenate(outputs, axis=1)


def _mlp(x: Array, base: str, weight: Any) -> Array:
    gate, up = (x @ weight(f"{base}.{part}_proj").T for part in ("gate", "up"))
    return np.asarray(gate / (1 + np.exp(-gate)) * up @ weight(f"{base}.down_proj").T)


def _experts(x: Array, base: str, weight: Any, text: Mapping[str, Any]) -> Array:
    scores = np.exp(x @ weight(f"{base}.gate").T)
    scores /= scores.sum(axis=1, keepdims=True)
    result = np.zeros_like(x)
    for row, shares in enumerate(scores):
        chosen = np.argsort(-shares)[: text["num_experts_per_tok"]]
        total = shares[chosen].sum() if text.get("norm_topk_prob", True) else 1.0
        for expert in chosen:
            result[row] += shares[expert] / total * _mlp(x[row], f"{base}.experts.{expert}", weight)
    return result
