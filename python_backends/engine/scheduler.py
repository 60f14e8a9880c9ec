"""Decides, before every step, who computes how many tokens in it."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from python_backends.engine.admission import AdmissionQueue
from python_backends.engine.blocks import BlockPool, IntegrityError
from python_backends.engine.kv_cache import KVCache
from python_backends.engine.sequence import Sequence


@dataclass(frozen=True, eq=False)
class StepRow:
    """The next `count` pending tokens of a sequence."""

    sequence: Sequence
    slot: int
    count: int

    @property
    def start(self) -> int:
        return self.sequence.computed

    @property
    def stop(self) -> int:
        return self.sequence.computed + self.count

    @property
    def draws(self) -> bool:
        """Whether nothing is pending after the step, so that the next token can be drawn."""
        return self.count == self.sequence.pending


class Scheduler:
    """Keeps the books of slots and blocks; every way into and out of the running batch goes through here.

    Not thread-safe: the engine holds its lock around every call.
    """

    def __init__(
        self, cache: KVCache, pool: BlockPool, queue: AdmissionQueue, prefill_chunk: int, max_step_tokens: int
    ) -> None:
        self.cache = cache
        self.pool = pool
        self.queue = queue
        self.running: list[Sequence] = []  # oldest first
        self.preempted = 0
        self._prefill_chunk = prefill_chunk
        self._max_step_tokens = max_step_tokens

    def plan(self) -> list[StepRow]:
        """Admit who fits, then share out the step's tokens: generating sequences first, then prompts.

        The oldest prompt is sure of half of what is left. Shorter ones go before it with the other half, so that a few
        words do not wait until a video is read; longer ones get what remains.
        """
        self._admit()
        budget = self._max_step_tokens
        planned: dict[Sequence, StepRow] = {}
        generating = [sequence for sequence in self.running if sequence.pending == 1]
        reading = [sequence for sequence in self.running if sequence.pending > 1]
        oldest = reading[0] if reading else None
        half = (budget - len(generating)) // 2
        reserved = min(oldest.pending, self._prefill_chunk, half) if oldest else 0
        shorter = sorted((s for s in reading if oldest and s.pending < oldest.pending), key=lambda s: s.pending)
        longer = [sequence for sequence in reading if sequence not in shorter]  # begins with the oldest
        for sequence in generating + shorter + longer:
            if sequence is oldest:
                reserved = 0
            count = min(sequence.pending, self._prefill_chunk, budget - reserved)
            if count and self._make_room(sequence, sequence.computed + count, planned):
                assert sequence.slot is not None
                planned[sequence] = StepRow(sequence, sequence.slot, count)
                budget -= count
        return list(planned.values())

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and give back all that it has."""
        if sequence.slot is None:
            self.queue.remove(sequence)
        else:
            self._vacate(sequence)
        sequence.drop_media()

    def drop_spare_media(self) -> None:
        """Free the embeddings of prompts that are read, if no running sequence can lose its slot any more.

        That is so if all could grow to their full length at once. Whoever joins later still has its own embeddings, so
        there is always a sequence that can be computed anew when blocks run out.
        """
        readers = [s for s in self.running if s.holds_media and s.computed >= s.prompt_length]
        if readers and sum(self.pool.blocks_for(s.longest) for s in self.running) <= self.pool.total:
            for sequence in readers:
                sequence.drop_media()

    def check(self) -> None:
        """
        Raises:
            IntegrityError: slots or blocks are lost, shared, or fewer than the entries that were computed.
        """
        self.cache.check()
        self.pool.check()
        if self.cache.used != len(self.running):
            raise IntegrityError(f"{self.cache.used} slots are taken by {len(self.running)} sequences")
        if self.pool.used != sum(self.pool.held(s.slot) for s in self.running if s.slot is not None):
            raise IntegrityError("blocks are held by a slot that nobody runs in")
        for sequence in self.running:
            if sequence.slot is None or self.pool.held(sequence.slot) < self.pool.blocks_for(sequence.computed):
                raise IntegrityError(f"{sequence.key} has computed more than its blocks hold")

    def _admit(self) -> None:
        """Let in, in the queue's order, who finds a slot and blocks for all tokens known so far."""
        promised = sum(
            self.pool.blocks_for(s.length) - self.pool.held(s.slot) for s in self.running if s.slot is not None
        )
        while self.cache.free and (sequence := self.queue.peek()):
            needed = self.pool.blocks_for(sequence.length)
            if promised + needed > self.pool.free:
                break
            promised += needed
            sequence.enter(self.cache.acquire())
            insort(self.running, self.queue.pop(), key=lambda running: running.order)

    def _make_room(self, sequence: Sequence, tokens: int, planned: dict[Sequence, StepRow]) -> bool:
        """Grant blocks, if need be at the cost of the youngest; False if that is the sequence itself."""
        while sequence.slot is not None:
            if self.pool.grow(sequence.slot, tokens):
                return True
            victim = next((s for s in reversed(self.running) if s.recomputable), None)
            if victim is None:
                raise IntegrityError("blocks ran out, and no sequence can be computed anew")
            planned.pop(victim, None)
            self._vacate(victim)
            self.queue.resume(victim)
            self.preempted += 1
        return False

    def _vacate(self, sequence: Sequence) -> None:
        assert sequence.slot is not None
        self.pool.release(sequence.slot)
        self.cache.release(sequence.slot)
        self.running.remove(sequence)
        sequence.leave()
