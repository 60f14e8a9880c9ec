"""The sizes of the random checkpoints. Nothing else in the project may rely on these numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ThinkerShape:
    """The text decoder; `mrope_section` sums to half of `head_dim`."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    experts_per_token: int
    expert_hidden: int
    mrope_section: tuple[int, int, int]
    max_positions: int


@dataclass(frozen=True)
class VisionShape:
    """The vision encoder; `positions` is the side of the square of learnt positions."""

    depth: int
    hidden: int
    heads: int
    mlp_hidden: int
    taps: tuple[int, ...]
    positions: int


@dataclass(frozen=True)
class AudioShape:
    """The audio encoder; `window` is the attention window in mel frames."""

    layers: int
    hidden: int
    heads: int
    mlp_hidden: int
    conv_channels: int
    window: int


@dataclass(frozen=True)
class SpeechShape:
    """Talker, code predictor and vocoder; heads of the talker are 32 wide."""

    hidden: int
    layers: int
    experts: int
    experts_per_token: int
    expert_hidden: int
    predictor_layers: int
    code_groups: int
    codebook: int
    vocoder_hidden: int
    vocoder_mlp_hidden: int


@dataclass(frozen=True)
class Shape:
    """A whole checkpoint.

    `merges` is how many merges of the common list its tokenizer has. `released_layout` writes the files as the released
    checkpoints have them (shards and an index, vocab.json, preprocessor_config.json) instead of as transformers 5.24
    saves them. `end_of_turn_gain` scales the output row of the end-of-turn token: some answers end by themselves.
    """

    name: str
    vocab: int
    merges: int
    thinker: ThinkerShape
    vision: VisionShape
    audio: AudioShape
    speech: SpeechShape
    image_pixels: tuple[int, int]  # least and most pixels of an image after resizing
    end_of_turn_gain: float
    released_layout: bool = False


SMALL = Shape(
    name="small",
    vocab=2048,
    merges=1700,
    thinker=ThinkerShape(
        layers=3,  # one more than deepstack taps: what is added after the last layer would change no answer
        hidden=128,
        heads=4,
        kv_heads=2,
        head_dim=32,
        experts=8,
        experts_per_token=2,
        expert_hidden=64,
        mrope_section=(6, 5, 5),
        max_positions=32768,
    ),
    vision=VisionShape(depth=4, hidden=64, heads=4, mlp_hidden=128, taps=(1, 2), positions=16),
    audio=AudioShape(layers=2, hidden=128, heads=4, mlp_hidden=256, conv_channels=32, window=800),
    speech=SpeechShape(
        hidden=128,
        layers=2,
        experts=8,
        experts_per_token=2,
        expert_hidden=64,
        predictor_layers=1,
        code_groups=4,
        codebook=64,
        vocoder_hidden=64,
        vocoder_mlp_hidden=128,
    ),
    image_pixels=(3136, 12845056),
    end_of_turn_gain=1.6,
)

WIDE = Shape(
    name="wide",
    vocab=1664,
    merges=1300,
    thinker=ThinkerShape(
        layers=5,
        hidden=192,
        heads=6,
        kv_heads=2,
        head_dim=48,
        experts=12,
        experts_per_token=3,
        expert_hidden=80,
        mrope_section=(10, 8, 6),
        max_positions=8192,
    ),
    vision=VisionShape(depth=6, hidden=96, heads=4, mlp_hidden=160, taps=(0, 2, 5), positions=24),
    audio=AudioShape(layers=3, hidden=96, heads=6, mlp_hidden=224, conv_channels=24, window=400),
    speech=SpeechShape(
        hidden=96,
        layers=3,
        experts=6,
        experts_per_token=3,
        expert_hidden=48,
        predictor_layers=2,
        code_groups=8,
        codebook=96,
        vocoder_hidden=48,
        vocoder_mlp_hidden=96,
    ),
    image_pixels=(16384, 200704),
    end_of_turn_gain=1.45,
    released_layout=True,
)

BENCH = Shape(
    name="bench",
    vocab=8192,
    merges=1700,
    thinker=ThinkerShape(
        layers=12,
        hidden=1024,
        heads=16,
        kv_heads=4,
        head_dim=64,
        experts=64,
        experts_per_token=8,
        expert_hidden=384,
        mrope_section=(12, 10, 10),
        max_positions=32768,
    ),
    vision=VisionShape(depth=4, hidden=256, heads=4, mlp_hidden=512, taps=(1, 2, 3), positions=48),
    audio=AudioShape(layers=2, hidden=256, heads=4, mlp_hidden=512, conv_channels=64, window=800),
    speech=SpeechShape(
        hidden=256,
        layers=2,
        experts=8,
        experts_per_token=2,
        expert_hidden=128,
        predictor_layers=2,
        code_groups=16,
        codebook=512,
        vocoder_hidden=128,
        vocoder_mlp_hidden=256,
    ),
    image_pixels=(3136, 12845056),
    end_of_turn_gain=1.0,
)

SHAPES = {shape.name: shape for shape in (SMALL, WIDE, BENCH)}
