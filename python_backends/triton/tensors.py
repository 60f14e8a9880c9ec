"""Tensors of a Triton request as Python values, and back. Every tensor carries a leading batch dimension of 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from python_backends.errors import InvalidRequest


class RequestReader:
    """Typed access to the inputs of one request. An absent input reads as None, or as an empty tuple of strings."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def array(self, name: str) -> NDArray[Any] | None:
        """The tensor without its batch dimension.

        Raises:
            InvalidRequest: a batch other than 1.
        """
        tensor = pb_utils.get_input_tensor_by_name(self._request, name)
        if tensor is None:
            return None
        array: NDArray[Any] = tensor.as_numpy()
        if array.ndim == 0 or array.shape[0] != 1:
            raise InvalidRequest(name, f"shape {list(array.shape)}", "a leading batch dimension of 1")
        first: NDArray[Any] = array[0]
        return first

    def required(self, name: str) -> NDArray[Any]:
        """Like `array`, for an input that the step before always sends."""
        array = self.array(name)
        if array is None:
            raise InvalidRequest(name, "no such input", "this input is required")
        return array

    def strings(self, name: str) -> tuple[bytes, ...]:
        """All elements of a BYTES input."""
        array = self.array(name)
        return () if array is None else tuple(bytes(item) for item in array.reshape(-1))

    def string(self, name: str) -> bytes | None:
        """The only element of a BYTES input."""
        items = self.strings(name)
        if len(items) > 1:
            raise InvalidRequest(name, f"{len(items)} strings", "one string")
        return items[0] if items else None

    def text(self, name: str) -> str:
        """A required BYTES input that one of our own models wrote."""
        value = self.string(name)
        if value is None:
            raise InvalidRequest(name, "no such input", "this input is required")
        return value.decode()

    def integer(self, name: str) -> int | None:
        value = self._scalar(name)
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        value = self._scalar(name)
        return None if value is None else float(value)

    def flag(self, name: str) -> bool | None:
        value = self._scalar(name)
        return None if value is None else bool(value)

    def _scalar(self, name: str) -> Any:
        array = self.array(name)
        if array is None:
            return None
        if array.size != 1:
            raise InvalidRequest(name, f"{array.size} values", "one value")
        return array.reshape(-1)[0]


def tensor(name: str, array: NDArray[Any]) -> Any:
    """An output tensor: the batch dimension is put in front."""
    return pb_utils.Tensor(name, np.ascontiguousarray(array)[None])


def string_tensor(name: str, *values: str | bytes) -> Any:
    """A BYTES output."""
    items = [value.encode() if isinstance(value, str) else value for value in values]
    return tensor(name, np.array(items, dtype=np.object_))


def scalar_tensor(name: str, value: float, dtype: type[np.generic]) -> Any:
    """An output of one value."""
    return tensor(name, np.array([value], dtype=dtype))
