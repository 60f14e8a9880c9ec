"""Puts one ONNX graph together; its weights go to the data file beside it as they come and do not stay in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from build_engines.errors import GraphError
from build_engines.output_file import OutputFile
from python_backends.engine_folder import FileRecord

OPSETS = {"": 23, "com.microsoft": 1}
# ONNX Runtime maps external weights into memory instead of reading them; whole pages map without a copy.
PAGE_BYTES = 4096
# The largest constant that belongs into the graph itself; whatever is larger is a weight.
MAX_CONSTANT_BYTES = 1 << 20


class GraphWriter:
    """One graph `<stem>.onnx` with its weights in `<stem>.onnx.data`, both in `folder`.

    Operators are added in the order in which they run. Use it in a `with` statement, or call `finish`: leaving the
    statement by an error closes the data file and writes no graph.

    Raises:
        GraphError: from any method that is called wrongly.
        OSError: from any method that writes.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._data = OutputFile(folder / f"{stem}.onnx.data")
        self._graph = ir.Graph([], [], nodes=[], opset_imports=dict(OPSETS), name=stem)
        self._constants: dict[tuple[ir.DataType, tuple[int, ...], bytes], ir.Value] = {}
        self._names: set[str] = set()
        self._files: dict[str, FileRecord] = {}

    @property
    def files(self) -> dict[str, FileRecord]:
        """Name, size and hash of each file, once `finish` has been called."""
        return dict(self._files)

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
        """An input of the graph; a string in `shape` names a size that may change from run to run."""
        self._claim(name)
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self._graph.inputs.append(value)
        return value

    def weight(self, name: str, array: NDArray[Any]) -> ir.Value:
        """Append `array` to the data file now; only its place is kept, the caller may drop or overwrite the array."""
        self._claim(name)
        self._data.align(PAGE_BYTES)
        offset = self._data.bytes
        self._data.write_array(array)
        tensor = ir.ExternalTensor(
            self._data.path.name,
            offset,
            array.nbytes,
            ir.DataType.from_numpy(array.dtype),
            shape=ir.Shape(array.shape),
            name=name,
            base_dir=self._folder,
        )
        return self._initializer(name, tensor)

    def constant(
        self, value: NDArray[Any] | int | float | Sequence[int] | Sequence[float], dtype: ir.DataType | None = None
    ) -> ir.Value:
        """A small constant inside the graph; equal ones are one value.

        Without `dtype`, arrays keep their type; of other values, truth values stay, whole numbers become int64 and
        fractions float32.
        """
        array = _typed(value) if dtype is None else np.asarray(value, dtype.numpy())
        if array.nbytes > MAX_CONSTANT_BYTES:
            raise GraphError(
                f"{self._stem}: constant of {array.nbytes} bytes; allowed: {MAX_CONSTANT_BYTES}, use weight"
            )
        kind = ir.DataType.from_numpy(array.dtype)
        key = (kind, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._claim(name)
            # A copy: the caller may go on using its array.
            self._constants[key] = self._initializer(name, ir.Tensor(np.array(array, order="C"), name=name))
        return self._constants[key]

    def op(self, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any) -> ir.Value:
        """Append an operator that gives one value; None stands for an optional input that is left out."""
        return self.ops(op_type, *inputs, outputs=1, domain=domain, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: ir.Value | None, outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """Append an operator that gives several values."""
        if domain not in OPSETS:
            raise GraphError(f"{self._stem}: {op_type} is of domain {domain!r}; allowed: {sorted(OPSETS)}")
        node = ir.node(op_type, list(inputs), attributes, domain=domain, num_outputs=outputs)
        self._graph.append(node)
        return tuple(node.outputs)

    def output(
        self,
        value: ir.Value,
        name: str,
        dtype: ir.DataType | None = None,
        shape: Sequence[int | str | None] | None = None,
    ) -> None:
        """Make `value` an output called `name`. ONNX wants a type and a shape: float32 unless given or known already;
        the shape must be given, unless the value has one.
        """
        if value.producer() is None or value.is_graph_output():  # an input, weight or other output keeps its own name
            source, value = value, self.op("Identity", value)
            value.type, value.shape = source.type, source.shape
        self._claim(name)
        value.name = name
        if dtype is not None or value.type is None:
            value.type = ir.TensorType(dtype or ir.DataType.FLOAT)
        if shape is not None:
            value.shape = ir.Shape(shape)
        if value.shape is None:
            raise GraphError(f"{self._stem}: output {name} has no shape")
        self._graph.outputs.append(value)

    def finish(self) -> tuple[Path, Path]:
        """Write the graph, check it, and put both files on the disk; returns the paths of the graph and of its data.

        Raises:
            GraphError: the graph is not valid ONNX, or ONNX Runtime does not take it.
        """
        self._files[self._data.path.name] = self._data.close()
        model = ir.Model(self._graph, ir_version=11, producer_name="omni-triton")
        proto = ir.to_proto(model)
        path = self._folder / f"{self._stem}.onnx"
        with OutputFile(path) as file:
            file.write(proto.SerializeToString())
        self._files[path.name] = file.close()
        try:
            onnx.checker.check_model(str(path))
            _load(path)
        except Exception as error:  # ONNX Runtime has no common base class for its errors
            raise GraphError(f"{self._stem}: the graph is not valid: {error}") from error
        return path, self._data.path

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._data.abandon()

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise GraphError(f"{self._stem}: the name {name} is used twice")
        self._names.add(name)

    def _initializer(self, name: str, tensor: ir.Tensor[Any] | ir.ExternalTensor) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
        self._graph.register_initializer(value)
        return value


def _typed(value: NDArray[Any] | int | float | Sequence[int] | Sequence[float]) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "b":
        return array
    return array.astype(np.float32 if array.dtype.kind == "f" and array.size else np.int64)


def _load(path: Path) -> None:
    """Let ONNX Runtime check types, shapes and its own operators; weights are only mapped, whatever their size."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
