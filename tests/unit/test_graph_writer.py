from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from build_engines.errors import GraphError
from build_engines.graph_writer import PAGE_BYTES, GraphWriter


def test_a_graph_with_weights_runs_in_onnx_runtime(tmp_path: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    with GraphWriter(tmp_path, "part") as writer:
        rows = writer.input("rows", ir.DataType.FLOAT, ["n", 3])
        product = writer.op("MatMul", rows, writer.weight("w", weight))
        halves = writer.ops("Split", product, outputs=2, axis=1, num_outputs=2)
        gated = writer.op("QuickGelu", halves[0], domain="com.microsoft", alpha=1.0)
        writer.output(gated, "gated", shape=["n", 2])
        writer.output(halves[1], "plain", shape=["n", 2])
        graph, data = writer.finish()
    rows_in = np.ones((5, 3), np.float32)
    gated_out, plain_out = ort.InferenceSession(str(graph)).run(None, {"rows": rows_in})
    product_in = rows_in @ weight
    np.testing.assert_allclose(plain_out, product_in[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(gated_out, product_in[:, :2] / (1 + np.exp(-product_in[:, :2])), rtol=1e-5)
    assert (graph.name, data.name) == ("part.onnx", "part.onnx.data")


def test_a_weight_may_be_overwritten_once_it_was_added(tmp_path: Path) -> None:
    array = np.full(4, 7, np.float32)
    with GraphWriter(tmp_path, "part") as writer:
        total = writer.op("Add", writer.input("x", ir.DataType.FLOAT, [4]), writer.weight("w", array))
        array[:] = 0
        writer.output(total, "y", shape=[4])
        graph, _ = writer.finish()
    (result,) = ort.InferenceSession(str(graph)).run(None, {"x": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(result, np.full(4, 7, np.float32))


def test_weights_start_at_page_borders_and_are_no_part_of_the_graph_file(tmp_path: Path) -> None:
    first, second = np.arange(1000, dtype=np.float32), np.arange(7, dtype=np.int64)
    with GraphWriter(tmp_path, "part") as writer:
        writer.output(writer.weight("a", first), "first")
        writer.output(writer.weight("b", second), "second")
        graph, data = writer.finish()
    stored = data.read_bytes()
    assert stored[: first.nbytes] == first.tobytes()
    assert stored[PAGE_BYTES:] == second.tobytes()
    assert graph.stat().st_size < 1000
    for tensor in onnx.load(graph, load_external_data=False).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        assert place["location"] == "part.onnx.data"
        assert int(place["offset"]) % PAGE_BYTES == 0


@pytest.mark.parametrize("turn", [np.transpose, lambda a: a[::-1], lambda a: a[:, ::2]])
def test_an_array_that_is_not_contiguous_is_stored_in_order(tmp_path: Path, turn: object) -> None:
    assert callable(turn)
    array = turn(np.arange(24, dtype=np.float32).reshape(4, 6))
    with GraphWriter(tmp_path, "part") as writer:
        writer.output(writer.weight("w", array), "w_out")
        _, data = writer.finish()
    assert data.read_bytes() == np.ascontiguousarray(array).tobytes()


def test_offsets_beyond_4_gib_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = 5 * 2**30
    with GraphWriter(tmp_path, "part") as writer:
        # A hole of 5 GiB takes no room on the disk and no time to write.
        monkeypatch.setattr(writer._data, "bytes", far)
        writer._data._file.seek(far)
        writer.output(writer.weight("w", np.full(3, 2, np.float32)), "w_out")
        graph, data = writer.finish()
    assert data.stat().st_size == far + 12
    (result,) = ort.InferenceSession(str(graph)).run(None, {})
    np.testing.assert_array_equal(result, np.full(3, 2, np.float32))


def test_sizes_and_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    with GraphWriter(tmp_path, "part") as writer:
        writer.output(writer.weight("w", np.ones(5, np.float32)), "w_out")
        writer.finish()
    assert set(writer.files) == {"part.onnx", "part.onnx.data"}
    for name, record in writer.files.items():
        content = (tmp_path / name).read_bytes()
        assert record.bytes == len(content)
        assert record.sha256 == hashlib.sha256(content).hexdigest()


def test_equal_constants_are_one_value_and_numbers_get_onnx_types(tmp_path: Path) -> None:
    with GraphWriter(tmp_path, "part") as writer:
        assert writer.constant([1, 2]) is writer.constant(np.array([1, 2]))
        assert writer.constant([1, 2]) is not writer.constant([1.0, 2.0])
        assert writer.constant(1).dtype == ir.DataType.INT64
        assert writer.constant(0.5).dtype == ir.DataType.FLOAT
        assert writer.constant([]).dtype == ir.DataType.INT64
        assert writer.constant(True).dtype == ir.DataType.BOOL
        assert writer.constant([1, 2], ir.DataType.INT32).dtype == ir.DataType.INT32


def test_inputs_and_shared_values_can_be_outputs_too(tmp_path: Path) -> None:
    with GraphWriter(tmp_path, "part") as writer:
        x = writer.input("x", ir.DataType.INT64, ["n"])
        doubled = writer.op("Add", x, x)
        writer.output(x, "same")
        writer.output(doubled, "first", ir.DataType.INT64, ["n"])
        writer.output(doubled, "second")
        graph, _ = writer.finish()
    results = ort.InferenceSession(str(graph)).run(["same", "first", "second"], {"x": np.array([1, 2])})
    assert [list(result) for result in results] == [[1, 2], [2, 4], [2, 4]]


def test_a_name_can_be_used_only_once(tmp_path: Path) -> None:
    with GraphWriter(tmp_path, "part") as writer:
        writer.input("x", ir.DataType.FLOAT, [1])
        with pytest.raises(GraphError, match="the name x is used twice"):
            writer.weight("x", np.ones(1, np.float32))


def test_an_unknown_domain_an_output_without_shape_and_a_huge_constant_are_refused(tmp_path: Path) -> None:
    with GraphWriter(tmp_path, "part") as writer:
        x = writer.input("x", ir.DataType.FLOAT, [1])
        with pytest.raises(GraphError, match="allowed: "):
            writer.op("Add", x, x, domain="com.example")
        with pytest.raises(GraphError, match="output y has no shape"):
            writer.output(writer.op("Add", x, x), "y")
        with pytest.raises(GraphError, match="use weight"):
            writer.constant(np.zeros(2**20, np.float32))


def test_a_graph_that_onnx_runtime_does_not_take_is_refused(tmp_path: Path) -> None:
    with GraphWriter(tmp_path, "part") as writer:
        x = writer.input("x", ir.DataType.FLOAT, [2, 3])
        writer.output(writer.op("MatMul", x, writer.weight("w", np.ones((2, 3), np.float32))), "y", shape=[2, 3])
        with pytest.raises(GraphError, match="part: the graph is not valid"):
            writer.finish()


def test_an_error_in_the_middle_writes_no_graph(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), GraphWriter(tmp_path, "part") as writer:
        writer.weight("w", np.ones(3, np.float32))
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["part.onnx.data"]
