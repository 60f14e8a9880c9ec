"""Encoders of tiny random checkpoints, and what they should give: plain numpy in fp64, one item at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from build_engines.__main__ import main as build_engines
from python_backends.engine_folder import EngineFolder
from tests.unit.tiny_checkpoint import config_json, random_tensors, write_checkpoint

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """The tensors below one prefix."""

    tensors: Mapping[str, NDArray[Any]]
    prefix: str

    def __getitem__(self, name: str) -> Array:
        return self.tensors[f"{self.prefix}.{name}"].astype(np.float64)

    def linear(self, x: Array, name: str) -> Array:
        bias = self[f"{name}.bias"] if f"{self.prefix}.{name}.bias" in self.tensors else 0
        return x @ self[f"{name}.weight"].T + bias

    def norm(self, x: Array, name: str, epsilon: float) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        return scaled * self[f"{name}.weight"] + self[f"{name}.bias"]


def encoder_config() -> dict[str, Any]:
    """A `config.json` with three taps' worth of vision layers and an attention window of two chunks of sound."""
    config = config_json()
    thinker = config["thinker_config"]
    thinker["vision_config"] |= {"depth": 3, "deepstack_visual_indexes": [0, 2], "hidden_act": "gelu_pytorch_tanh"}
    thinker["audio_config"] |= {"encoder_layers": 2, "n_window_infer": 200}
    return config


def encoder_tensors(config: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Weights scaled so that attention picks some keys over others without being blind to the rest."""
    tensors = random_tensors(config)
    return {
        name: (tensor * (1.5 / math.sqrt(math.prod(tensor.shape[1:])))).astype(tensor.dtype)
        if tensor.ndim > 1
        else tensor
        for name, tensor in tensors.items()
    }


def build_encoders(folder: Path, config: Mapping[str, Any], tensors: dict[str, NDArray[Any]]) -> EngineFolder:
    """The engine folder of a checkpoint with these settings and weights."""
    checkpoint = write_checkpoint(folder / "checkpoint", config, tensors)
    assert build_engines([str(checkpoint), "--out", str(folder / "engines")]) == 0
    return EngineFolder.open(folder / "engines" / "current")


def vision_reference(
    config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], patches: NDArray[Any], grid: tuple[int, int, int]
) -> Array:
    """[tokens, hidden * (1 + L)]"""
    vision = config["thinker_config"]["vision_config"]
    weights = Weights(tensors, "thinker.visual")
    time, height, width = grid
    frames = np.split(patches.astype(np.float64), time)
    return np.concatenate([_frame(vision, weights, frame, height, width) for frame in frames])


def audio_reference(config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], features: NDArray[Any]) -> Array:
    """[tokens, hidden]"""
    audio = config["thinker_config"]["audio_config"]
    weights = Weights(tensors, "thinker.audio_tower")
    chunk = 2 * audio["n_window"]
    tokens = []
    for start in range(0, len(features), chunk):
        frames = features[start : start + chunk].astype(np.float64)
        kept = -(-len(frames) // 8)
        # the last chunk is as long as the first, if there is a first
        padding = (chunk if start else min(chunk, len(features))) - len(frames)
        tokens.append(_convolve(weights, np.pad(frames, ((0, padding), (0, 0))))[:kept])
    x = np.concatenate(tokens)
    window = audio["n_window_infer"] // chunk * 13
    for layer in range(audio["encoder_layers"]):
        name = f"layers.{layer}"
        normed = weights.norm(x, f"{name}.self_attn_layer_norm", 1e-5)
        query, key, value = (weights.linear(normed, f"{name}.self_attn.{part}_proj") for part in "qkv")
        attended = [
            _attend(
                query[at : at + window],
                key[at : at + window],
                value[at : at + window],
                audio["encoder_attention_heads"],
            )
            for at in range(0, len(x), window)
        ]
        x = x + weights.linear(np.concatenate(attended), f"{name}.self_attn.out_proj")
        normed = weights.norm(x, f"{name}.final_layer_norm", 1e-5)
        x = x + weights.linear(_gelu(weights.linear(normed, f"{name}.fc1")), f"{name}.fc2")
    x = weights.linear(weights.norm(x, "ln_post", 1e-5), "proj1")
    return weights.linear(_gelu(x), "proj2")


def _frame(vision: Mapping[str, Any], weights: Weights, patches: Array, height: int, width: int) -> Array:
    heads, hidden = vision["num_heads"], vision["hidden_size"]
    side = math.isqrt(vision["num_position_embeddings"])
    table = weights["pos_embed.weight"].reshape(side, side, hidden)
    places = [
        (2 * block_row + row, 2 * block_column + column)
        for block_row in range(height // 2)
        for block_column in range(width // 2)
        for row in range(2)
        for column in range(2)
    ]
    x = patches @ weights["patch_embed.proj.weight"].reshape(hidden, -1).T + weights["patch_embed.proj.bias"]
    x = x + np.stack([_bilinear(table, row / (height - 1), column / (width - 1)) for row, column in places])
    quarter = hidden // heads // 4
    rates = 10000.0 ** (-np.arange(quarter) / quarter)
    angles = np.stack([np.concatenate([row * rates, column * rates]) for row, column in places])
    deepstack = []
    for layer in range(vision["depth"]):
        name = f"blocks.{layer}"
        query, key, value = np.split(
            weights.linear(weights.norm(x, f"{name}.norm1", 1e-6), f"{name}.attn.qkv"), 3, axis=1
        )
        attended = _attend(_rotate(query, angles, heads), _rotate(key, angles, heads), value, heads)
        x = x + weights.linear(attended, f"{name}.attn.proj")
        inner = weights.linear(weights.norm(x, f"{name}.norm2", 1e-6), f"{name}.mlp.linear_fc1")
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = x + weights.linear(inner, f"{name}.mlp.linear_fc2")
        if layer in vision["deepstack_visual_indexes"]:
            tap = f"merger_list.{len(deepstack)}"
            deepstack.append(_merge(weights, tap, weights.norm(x.reshape(-1, 4 * hidden), f"{tap}.ln_q", 1e-6)))
    merged = _merge(weights, "merger", weights.norm(x, "merger.ln_q", 1e-6).reshape(-1, 4 * hidden))
    return np.concatenate([merged, *deepstack], axis=1)


def _merge(weights: Weights, name: str, rows: Array) -> Array:
    return weights.linear(_gelu(weights.linear(rows, f"{name}.mlp.0")), f"{name}.mlp.2")


def _bilinear(table: Array, down: float, across: float) -> Array:
    """The table [side, side, hidden] at a place given as shares of its height and width."""
    last = len(table) - 1
    top, left = min(int(down * last), last - 1), min(int(across * last), last - 1)
    low, right = down * last - top, across * last - left
    upper = table[top, left] * (1 - right) + table[top, left + 1] * right
    lower = table[top + 1, left] * (1 - right) + table[top + 1, left + 1] * right
    return np.asarray(upper * (1 - low) + lower * low)


def _rotate(x: Array, angles: Array, heads: int) -> Array:
    first, second = np.split(x.reshape(len(x), heads, -1), 2, axis=2)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=2).reshape(len(x), -1)


def _attend(query: Array, key: Array, value: Array, heads: int) -> Array:
    outputs = []
    for q, k, v in zip(*(np.split(part, heads, axis=1) for part in (query, key, value)), strict=True):
        scores = q @ k.T / math.sqrt(q.shape[1])
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(shares / shares.sum(axis=1, keepdims=True) @ v)
    return np.concatenate(outputs, axis=1)


def _convolve(weights: Weights, frames: Array) -> Array:
    """Frames [F, bins] of one chunk to [F', d_model], with the chunk's positions."""
    image = frames.T[None]
    for number in (1, 2, 3):
        kernel, bias = weights[f"conv2d{number}.weight"], weights[f"conv2d{number}.bias"]
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        height, width = (-(-size // 2) for size in image.shape[1:])
        image = bias[:, None, None] + sum(
            np.tensordot(kernel[:, :, i, j], padded[:, i : i + 2 * height : 2, j : j + 2 * width : 2], axes=1)
            for i in range(3)
            for j in range(3)
        )
        image = _gelu(image)
    rows = weights.linear(image.transpose(2, 0, 1).reshape(image.shape[2], -1), "conv_out")
    half = rows.shape[1] // 2
    angles = np.arange(len(rows))[:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
    return rows + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
