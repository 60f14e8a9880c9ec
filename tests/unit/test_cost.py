"""A request's cost and class follow from its prompt."""

from __future__ import annotations

import numpy as np
import pytest

from python_backends.messages import TrafficClass
from python_backends.preprocess.chat import MediaKind
from python_backends.preprocess.cost import TokenCounts, request_cost, traffic_class
from tests.unit.prompt_engine import TOKENS


def test_tokens_are_counted_by_kind_and_everything_else_is_text() -> None:
    ids = [1, TOKENS.vision_start, *[TOKENS.image] * 4, TOKENS.vision_end, *[TOKENS.audio] * 3, *[TOKENS.video] * 2, 7]
    counts = TokenCounts.of(np.array(ids, dtype=np.int32), TOKENS)
    assert counts == TokenCounts(text=4, image=4, audio=3, video=2)


def test_the_cost_holds_all_that_will_occupy_memory() -> None:
    cost = request_cost(TokenCounts(text=10, image=4, audio=3, video=2), frames=8, max_tokens=100)
    assert (cost.prompt_tokens, cost.vision_tokens, cost.audio_tokens, cost.frames) == (19, 6, 3, 8)
    assert cost.total_tokens == 119


@pytest.mark.parametrize(
    ("kinds", "traffic"),
    [
        ([], TrafficClass.TEXT),
        ([MediaKind.AUDIO], TrafficClass.AUDIO),
        ([MediaKind.IMAGE, MediaKind.AUDIO], TrafficClass.IMAGE),
        ([MediaKind.AUDIO, MediaKind.VIDEO, MediaKind.IMAGE], TrafficClass.VIDEO),
    ],
)
def test_the_heaviest_media_decide_the_class(kinds: list[MediaKind], traffic: TrafficClass) -> None:
    assert traffic_class(kinds) is traffic
