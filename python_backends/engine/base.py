"""The engine as the layers above see it: submit, cancel, statistics. Implementations stand beside this module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from python_backends.messages import FloatArray, IntArray, RequestCost, SamplingParams, TrafficClass


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # end-of-sequence token
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, eq=False)
class GenerationRequest:
    """A prompt with its media embeddings.

    Rows of `vision_embeddings` and `audio_embeddings` fill the placeholder tokens in prompt order. Vision rows are as
    wide as 1 + L hidden sizes: the embedding, then L deepstack features (Qwen3-Omni, `deepstack_visual_indexes`).
    """

    key: str
    input_ids: IntArray  # [T]
    position_ids: IntArray  # [3, T]
    rope_delta: int
    sampling: SamplingParams
    cost: RequestCost
    traffic_class: TrafficClass
    vision_embeddings: FloatArray | None = None  # [rows, hidden * (1 + L)]
    audio_embeddings: FloatArray | None = None  # [rows, hidden]


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of a chosen token and of the most likely ones (id, logprob), before temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class SequenceTimes:
    """Where a finished sequence's time went, in milliseconds."""

    queue: float
    prefill: float
    decode: float


@dataclass(frozen=True)
class TokenEvent:
    """Tokens that a step made for one sequence. The last event of a sequence, and only that, has a finish reason.

    `times` come with the first token and with the last event. The end-of-sequence token itself is not among
    `token_ids`. `error` is set when the reason is ERROR.
    """

    key: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    times: SequenceTimes | None = None
    cached_tokens: int = 0
    error: Exception | None = None


TokenSink = Callable[[TokenEvent], None]


@dataclass(frozen=True)
class EngineStats:
    """Counters and gauges of an engine, all read at one moment."""

    waiting: int = 0
    running: int = 0
    slots_used: int = 0
    slots_total: int = 0
    blocks_used: int = 0
    blocks_total: int = 0
    tokens_per_block: int = 0
    kv_tokens_used: int = 0  # entries written, so blocks_used * tokens_per_block - kv_tokens_used is waste
    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    steps_by_rows: dict[int, int] = field(default_factory=dict)  # rows in a step -> how many such steps
    finished: int = 0
    cancelled: int = 0
    preempted: int = 0


class Engine(ABC):
    """Generates tokens for many sequences at once (in-flight batching)."""

    @abstractmethod
    def submit(self, request: GenerationRequest, sink: TokenSink) -> None:
        """Queue a request. `sink` is called from the engine's thread, in order, and must not block.

        Raises:
            Overloaded: the waiting queue is full.
            InvalidRequest: the prompt does not fit, or embeddings and placeholders disagree.
        """

    @abstractmethod
    def cancel(self, key: str) -> bool:
        """Stop a sequence before its next step. False if the key is not known (any more). Thread-safe."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Counters and gauges now. Thread-safe."""

    @abstractmethod
    def close(self) -> None:
        """Cancel everything and stop the engine's thread."""
