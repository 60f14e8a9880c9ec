"""Who computes how much in a step. No graph runs here: what a step would compute is entered by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python_backends.config import OmniConfig
from python_backends.engine.admission import AdmissionQueue
from python_backends.engine.base import TokenEvent
from python_backends.engine.blocks import BlockPool, IntegrityError
from python_backends.engine.kv_cache import KVCache, KVShape
from python_backends.engine.scheduler import Scheduler, StepRow
from python_backends.engine.sequence import Sequence
from python_backends.errors import Overloaded
from tests.unit.tiny_checkpoint import config_json
from tests.unit.tiny_thinker import make_request, media_request

CONFIG = OmniConfig.from_json(config_json(), {"eos_token_id": 1})


def ignore(_: TokenEvent) -> None:
    """A sink; no events are made here."""


def make_scheduler(
    slots: int = 4, blocks: int = 100, chunk: int = 8, step: int = 16, waiting: int = 50, block_tokens: int = 4
) -> Scheduler:
    cache = KVCache(KVShape(1, 1, 16, slots, tokens=64))
    return Scheduler(cache, BlockPool(blocks, block_tokens), AdmissionQueue(waiting), chunk, step)


def make_sequence(order: int, prompt: int, max_tokens: int = 10) -> Sequence:
    return Sequence(make_request(f"{order}", np.zeros(prompt, int), max_tokens), CONFIG, ignore, order)


def make_media_sequence(order: int, max_tokens: int = 10) -> Sequence:
    return Sequence(media_request(f"{order}", order, max_tokens=max_tokens), CONFIG, ignore, order)


def enter(scheduler: Scheduler, *sequences: Sequence) -> None:
    for sequence in sequences:
        scheduler.queue.push(sequence)


def compute(scheduler: Scheduler, rows: list[StepRow]) -> list[Sequence]:
    """What the engine does after a step; those that have all their tokens leave and are returned."""
    drawing = [row.sequence for row in rows if row.draws]
    for row in rows:
        row.sequence.computed += row.count
    ended = []
    for sequence in drawing:
        sequence.append(0)
        if sequence.length == sequence.longest:
            scheduler.remove(sequence)
            ended.append(sequence)
    scheduler.drop_spare_media()
    scheduler.check()
    return ended


def counts(rows: list[StepRow]) -> dict[str, int]:
    return {row.sequence.key: row.count for row in rows}


def test_one_step_holds_generating_sequences_and_pieces_of_prompts() -> None:
    scheduler = make_scheduler(chunk=8, step=12)
    enter(scheduler, make_sequence(0, 3))
    compute(scheduler, scheduler.plan())
    enter(scheduler, make_sequence(1, 20), make_sequence(2, 20))
    assert counts(scheduler.plan()) == {"0": 1, "1": 8, "2": 3}


def test_generating_sequences_come_before_older_prompts() -> None:
    scheduler = make_scheduler(chunk=8, step=10)
    enter(scheduler, make_sequence(0, 40), make_sequence(1, 2))
    compute(scheduler, scheduler.plan())
    assert list(counts(scheduler.plan()).items()) == [("1", 1), ("0", 8)]


def test_a_short_prompt_overtakes_a_long_one_which_still_keeps_half_of_the_step() -> None:
    scheduler = make_scheduler(chunk=16, step=16)
    enter(scheduler, make_sequence(0, 60))
    compute(scheduler, scheduler.plan())
    enter(scheduler, make_sequence(1, 6), make_sequence(2, 3))
    assert counts(scheduler.plan()) == {"2": 3, "1": 5, "0": 8}


def test_a_longer_prompt_waits_for_an_older_shorter_one() -> None:
    scheduler = make_scheduler(chunk=16, step=16)
    enter(scheduler, make_sequence(0, 30), make_sequence(1, 40))
    assert counts(scheduler.plan()) == {"0": 16}


def test_a_freed_slot_is_taken_in_the_next_step() -> None:
    scheduler = make_scheduler(slots=2)
    first, second, third = (make_sequence(order, 3) for order in range(3))
    enter(scheduler, first, second, third)
    compute(scheduler, scheduler.plan())
    assert (first.slot, second.slot, third.slot) == (0, 1, None)
    scheduler.remove(first)
    assert counts(scheduler.plan()) == {"1": 1, "2": 3}
    assert third.slot == 0


def test_nobody_is_let_in_before_there_are_blocks_for_its_whole_prompt() -> None:
    scheduler = make_scheduler(blocks=10, chunk=4)
    big, small = make_sequence(0, 32), make_sequence(1, 12)
    enter(scheduler, big, small)
    assert counts(scheduler.plan()) == {"0": 4}
    assert small.slot is None
    scheduler.remove(big)
    assert counts(scheduler.plan()) == {"1": 4}


def test_when_blocks_run_out_the_youngest_yields_and_comes_back_before_newer_ones() -> None:
    scheduler = make_scheduler(blocks=4, slots=2)
    old, young = make_sequence(0, 8), make_sequence(1, 8)
    enter(scheduler, old, young, make_sequence(2, 1))
    compute(scheduler, scheduler.plan())
    assert counts(scheduler.plan()) == {"0": 1}
    assert (young.slot, young.computed, young.length, scheduler.preempted) == (None, 0, 9, 1)
    assert scheduler.queue.peek() is young
    scheduler.remove(old)
    assert counts(scheduler.plan()) == {"2": 1, "1": 8}


def test_embeddings_are_kept_while_a_sequence_might_have_to_be_computed_anew() -> None:
    for blocks, kept in ((18, False), (17, True)):
        scheduler = make_scheduler(blocks=blocks, chunk=40, step=80)
        sequence = make_media_sequence(0, max_tokens=4)  # 32 tokens and 4
        enter(scheduler, sequence, make_sequence(1, 20, max_tokens=16))  # 20 and 16
        compute(scheduler, scheduler.plan())
        assert sequence.holds_media is kept


def test_a_sequence_without_its_embeddings_is_never_the_one_to_yield() -> None:
    scheduler = make_scheduler(blocks=12, chunk=40, step=80)
    media = make_media_sequence(1, max_tokens=16)  # 8 blocks now, 12 at the end
    enter(scheduler, media)
    compute(scheduler, scheduler.plan())
    assert not media.holds_media
    late = make_sequence(2, 8)
    older = make_sequence(0, 4)
    enter(scheduler, older, late)
    while media.length < media.longest and media.slot is not None:
        compute(scheduler, scheduler.plan())
    assert media.length == media.longest
    assert scheduler.preempted > 0


def test_a_sequence_leaves_nothing_behind_in_any_state() -> None:
    scheduler = make_scheduler(slots=2, chunk=4, step=8)
    sequences = [make_sequence(0, 2), make_media_sequence(1), make_sequence(2, 2)]
    enter(scheduler, *sequences)
    compute(scheduler, scheduler.plan())
    for sequence in sequences:
        scheduler.remove(sequence)
        scheduler.check()
        assert not sequence.holds_media
    assert (scheduler.cache.used, scheduler.pool.used, len(scheduler.queue)) == (0, 0, 0)


def test_a_full_queue_refuses_newcomers_but_takes_back_those_that_ran() -> None:
    queue = AdmissionQueue(limit=1)
    queue.push(make_sequence(5, 1))
    with pytest.raises(Overloaded, match="1 requests are waiting; allowed: 1"):
        queue.push(make_sequence(6, 1))
    queue.resume(make_sequence(2, 1))
    assert [queue.pop().order, queue.pop().order] == [2, 5]


@pytest.mark.parametrize(
    "damage",
    [
        lambda scheduler: scheduler.running.clear(),
        lambda scheduler: scheduler.pool.release(0),
        lambda scheduler: scheduler.pool.grow(3, 4),
        lambda scheduler: scheduler.cache.acquire(),
    ],
)
def test_damaged_books_are_noticed(damage: Callable[[Scheduler], object]) -> None:
    scheduler = make_scheduler()
    enter(scheduler, make_sequence(0, 3))
    compute(scheduler, scheduler.plan())
    damage(scheduler)
    with pytest.raises(IntegrityError):
        scheduler.check()


Job = tuple[int, int, bool]  # steps to wait before it comes, tokens of its prompt (0: with media), cancelled early


@settings(deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.booleans()), min_size=1, max_size=12),
    slots=st.integers(1, 5),
    blocks=st.integers(11, 40),
    chunk=st.integers(1, 40),
    step=st.integers(5, 50),
)
def test_every_sequence_ends_and_no_step_breaks_a_limit(
    jobs: list[Job], slots: int, blocks: int, chunk: int, step: int
) -> None:
    scheduler = make_scheduler(slots, blocks, chunk, step)
    coming = [
        (wait, make_sequence(order, prompt) if prompt else make_media_sequence(order), cancelled)
        for order, (wait, prompt, cancelled) in enumerate(jobs)
    ]
    left = set()
    for _ in range(3000):
        if coming and coming[0][0] <= 0:
            _, sequence, cancelled = coming.pop(0)
            scheduler.queue.push(sequence)
            left.add(sequence)
            if cancelled:
                scheduler.remove(sequence)
                left.remove(sequence)
        elif coming:
            coming[0] = (coming[0][0] - 1, *coming[0][1:])
        rows = scheduler.plan()
        scheduler.check()
        assert sum(row.count for row in rows) <= step
        assert all(0 < row.count <= chunk and row.slot == row.sequence.slot for row in rows)
        assert len({row.slot for row in rows}) == len(rows) <= slots
        assert rows or not left, "sequences are there, but none can run"
        left -= set(compute(scheduler, rows))
        if not left and not coming:
            break
    assert not left
    assert (scheduler.cache.used, scheduler.pool.used, len(scheduler.queue)) == (0, 0, 0)
