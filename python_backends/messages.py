"""Messages that cross the borders between the models of the ensemble.

Arrays are C-contiguous. Shapes use T (prompt tokens), P (vision patches), N (vision items), F (mel frames), M
(sounds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]


class TrafficClass(StrEnum):
    """What makes a request heavy: the most expensive kind of media in it."""

    TEXT = "text"
    AUDIO = "audio"
    IMAGE = "image"
    VIDEO = "video"


@dataclass(frozen=True)
class OmniRequest:
    """The public contract of the ensembles as it came in, not validated yet. None: the input was absent."""

    text_input: bytes | None = None
    messages: bytes | None = None
    image: tuple[bytes, ...] = ()
    audio: tuple[bytes, ...] = ()
    video: tuple[bytes, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[bytes, ...] = ()
    ignore_eos: bool | None = None
    logprobs: int | None = None
    tools: bytes | None = None
    streaming: bool | None = None
    use_audio_in_video: bool | None = None


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn; validated by preprocess.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1.0 mean "all". `logprobs` None: none are returned; n: the
    chosen token's and the n most likely ones'.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None


@dataclass(frozen=True)
class RequestCost:
    """What a request will cost, known before it is queued."""

    prompt_tokens: int
    vision_tokens: int
    audio_tokens: int
    frames: int
    max_tokens: int

    @property
    def total_tokens(self) -> int:
        """The most KV entries that the request can occupy."""
        return self.prompt_tokens + self.max_tokens


@dataclass(frozen=True)
class ResponseSpec:
    """What postprocess must know of a request; travels as JSON beside the thinker's first chunk.

    Token counts are of the prompt. `times_ms` are the parts measured before the thinker, for `usage.times_ms`.
    """

    streaming: bool
    stop: tuple[str, ...]
    tools: bool
    logprobs: int | None
    text_tokens: int
    image_tokens: int
    audio_tokens: int
    video_tokens: int
    times_ms: dict[str, float]


@dataclass(frozen=True)
class ThinkerUsage:
    """The thinker's part of the account.

    It is complete on the thinker's last chunk. An earlier chunk may carry what is known so far, so that an answer that
    ends at a stop string, before the last chunk, can report it.
    """

    completion_tokens: int
    cached_tokens: int
    times_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """What preprocess makes of an `OmniRequest`.

    Vision items are images and videos together, in the order in which their placeholder tokens stand in the prompt;
    so are sounds (a video's sound track is a sound of its own). The k-th embedding row of an encoder belongs to the
    k-th placeholder token of its kind. A media key is the hex digest of the encoded bytes, the size and the decode
    options.
    """

    key: str
    input_ids: IntArray  # [T]
    position_ids: IntArray  # [3, T]: time, height, width
    rope_delta: int  # the first generated token stands at position T + rope_delta
    pixel_values: FloatArray  # [P, channels * temporal_patch * patch * patch], P = sum of t*h*w
    grid_thw: IntArray  # [N, 3] in patches (t: temporal patches)
    vision_keys: tuple[str, ...]  # N
    audio_features: FloatArray  # [F, mel bins], the sounds one after another
    audio_lengths: IntArray  # [M] mel frames of each sound
    audio_keys: tuple[str, ...]  # M
    sampling: SamplingParams
    cost: RequestCost
    traffic_class: TrafficClass
    response: ResponseSpec
