from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from build_engines.checkpoint import Checkpoint
from build_engines.errors import CheckpointError
from build_engines.graph_writer import GraphWriter
from build_engines.graphs.vision import build_vision
from python_backends.encoders.vision import VisionEncoder, VisionItem
from python_backends.engine_folder import EngineFolder
from tests.unit.tiny_checkpoint import write_checkpoint
from tests.unit.tiny_encoders import build_encoders, encoder_config, encoder_tensors, vision_reference

CONFIG = encoder_config()
TENSORS = encoder_tensors(CONFIG)
PATCH = 3 * 2 * 4 * 4
HIDDEN = 32
WIDTH = HIDDEN * 3  # an embedding and two deepstack features


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> EngineFolder:
    return build_encoders(tmp_path_factory.mktemp("engine"), CONFIG, TENSORS)


@pytest.fixture
def encoder(engine: EngineFolder) -> VisionEncoder:
    return VisionEncoder(engine, threads=1)


def item(grid: tuple[int, int, int], seed: int = 0, key: str | None = None) -> VisionItem:
    patches = np.random.default_rng(seed).uniform(-1, 1, (grid[0] * grid[1] * grid[2], PATCH)).astype(np.float32)
    return VisionItem(patches, grid, key or f"{grid} {seed}")


def assert_close(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("grid", [(1, 2, 2), (1, 4, 6), (1, 6, 4), (1, 2, 14), (1, 16, 10), (1, 20, 22), (3, 4, 6)])
def test_every_feature_equals_the_plain_computation(encoder: VisionEncoder, grid: tuple[int, int, int]) -> None:
    one = item(grid)
    (found,) = encoder.encode([one])
    expected = vision_reference(CONFIG, TENSORS, one.patches, grid)
    for feature in range(3):
        columns = slice(feature * HIDDEN, (feature + 1) * HIDDEN)
        assert_close(found[:, columns], expected[:, columns])


def test_a_row_holds_the_embedding_and_all_deepstack_features(encoder: VisionEncoder) -> None:
    assert encoder.width == WIDTH
    assert encoder.encode([item((1, 4, 6))])[0].shape == (6, WIDTH)


def test_a_checkpoint_without_deepstack_gives_embeddings_alone(tmp_path: Path) -> None:
    config = encoder_config()
    config["thinker_config"]["vision_config"]["deepstack_visual_indexes"] = []
    encoder = VisionEncoder(build_encoders(tmp_path, config, encoder_tensors(config)), threads=1)
    assert encoder.encode([item((1, 4, 6))])[0].shape == (6, HIDDEN)


def test_items_of_one_call_get_what_they_get_alone(engine: EngineFolder) -> None:
    grids = [(1, 4, 6), (2, 6, 4), (1, 2, 12), (1, 8, 8), (3, 4, 6), (1, 2, 2)]
    items = [item(grid, seed) for seed, grid in enumerate(grids)]
    together = VisionEncoder(engine, threads=1).encode(items)
    for one, found in zip(items, together, strict=True):
        assert_close(found, vision_reference(CONFIG, TENSORS, one.patches, one.grid))


@pytest.mark.parametrize("patches_per_run", [1, 24, 60])
def test_the_patch_budget_does_not_change_the_result(engine: EngineFolder, patches_per_run: int) -> None:
    items = [item((5, 4, 6)), item((1, 6, 4), 1), item((1, 8, 10), 2)]
    found = VisionEncoder(engine, threads=1, patches_per_run=patches_per_run).encode(items)
    for one, expected in zip(found, VisionEncoder(engine, threads=1).encode(items), strict=True):
        assert_close(one, expected)


def test_temporal_patches_of_a_video_do_not_see_each_other(encoder: VisionEncoder) -> None:
    video = item((3, 4, 6))
    changed = video.patches.copy()
    changed[24:48] += 1
    before, after = encoder.encode([video, replace(video, patches=changed, key="changed")])
    np.testing.assert_allclose(after[[*range(6), *range(12, 18)]], before[[*range(6), *range(12, 18)]], rtol=1e-5)
    assert np.abs(after[6:12] - before[6:12]).max() > 0.01


def test_the_same_key_twice_in_a_call_is_computed_once(encoder: VisionEncoder) -> None:
    first, second, again = encoder.encode([item((1, 4, 6)), item((1, 2, 2)), item((1, 4, 6))])
    assert again is first
    assert second.shape == (1, WIDTH)
    assert encoder.cache.stats().misses == 2


def test_a_known_key_is_answered_from_the_cache(encoder: VisionEncoder) -> None:
    (before,) = encoder.encode([item((1, 4, 6), key="picture")])
    new, after = encoder.encode([item((1, 6, 8)), item((1, 4, 6), seed=1, key="picture")])
    assert after is before
    assert new.shape == (12, WIDTH)
    assert encoder.cache.stats().hits == 1


def test_without_room_in_the_cache_everything_is_computed_again(engine: EngineFolder) -> None:
    encoder = VisionEncoder(engine, threads=1, cache_bytes=0)
    (before,) = encoder.encode([item((1, 4, 6))])
    (after,) = encoder.encode([item((1, 4, 6))])
    np.testing.assert_array_equal(after, before)
    assert encoder.cache.stats().misses == 2


def test_no_items_give_no_arrays(encoder: VisionEncoder) -> None:
    assert encoder.encode([]) == []


def test_a_key_of_an_item_of_another_size_is_refused(encoder: VisionEncoder) -> None:
    encoder.encode([item((1, 4, 6), key="picture")])
    with pytest.raises(ValueError, match=r"vision item 0: found 12 tokens; allowed: 6"):
        encoder.encode([item((1, 6, 8), key="picture")])


@pytest.mark.parametrize("grid", [(0, 4, 4), (1, 3, 4), (1, 4, 5), (1, 0, 4), (1, -2, -2)])
def test_a_grid_that_cannot_be_merged_is_refused(encoder: VisionEncoder, grid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"vision item 1: found grid .* multiples of 2"):
        encoder.encode([item((1, 2, 2)), VisionItem(np.zeros((16, PATCH), np.float32), grid, "bad")])


@pytest.mark.parametrize(
    "patches", [np.zeros((15, PATCH), np.float32), np.zeros((16, PATCH), np.float64), np.zeros(16)]
)
def test_patches_that_do_not_fit_the_grid_are_refused(encoder: VisionEncoder, patches: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match=r"vision item 0: found patches .* allowed: float32 \(16, 96\)"):
        encoder.encode([VisionItem(patches, (1, 4, 4), "bad")])


def test_a_provider_that_is_not_there_is_refused_instead_of_replaced(engine: EngineFolder) -> None:
    with pytest.raises(ValueError, match=r"providers: found NoSuchProvider; allowed: .*CPUExecutionProvider"):
        VisionEncoder(engine, threads=1, providers=["NoSuchProvider"])


def build_vision_alone(folder: Path, config: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> None:
    checkpoint = Checkpoint(write_checkpoint(folder / "checkpoint", config, tensors))
    with GraphWriter(folder, "vision_encoder") as writer:
        build_vision(checkpoint, writer, lambda _: None)


def test_a_weight_of_another_shape_stops_the_build(tmp_path: Path) -> None:
    name = "thinker.visual.blocks.1.mlp.linear_fc2.weight"
    tensors = TENSORS | {name: TENSORS[name][:, :-1].copy()}
    with pytest.raises(CheckpointError, match=rf"{name}: found shape \(16, 23\); allowed: \(16, 24\)"):
        build_vision_alone(tmp_path, CONFIG, tensors)


def test_an_activation_that_the_graph_does_not_know_stops_the_build(tmp_path: Path) -> None:
    config = encoder_config()
    config["thinker_config"]["vision_config"]["hidden_act"] = "relu6"
    with pytest.raises(CheckpointError, match=r"found activation 'relu6'; allowed: gelu or gelu_pytorch_tanh"):
        build_vision_alone(tmp_path, config, TENSORS)


def test_every_byte_of_the_weights_is_told_to_the_progress(tmp_path: Path) -> None:
    checkpoint = Checkpoint(write_checkpoint(tmp_path / "checkpoint", CONFIG, TENSORS))
    told: list[int] = []
    with GraphWriter(tmp_path, "vision_encoder") as writer:
        build_vision(checkpoint, writer, told.append)
        writer.finish()
    names = [name for name in checkpoint.names() if name.startswith("thinker.visual.")]
    assert sum(told) == sum(checkpoint.fp32_bytes(name) for name in names)
