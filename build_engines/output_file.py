"""Files of an engine folder, hashed as they are written so that nothing is read twice."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from python_backends.engine_folder import FileRecord

BLOCK_BYTES = 64 * 2**20


class OutputFile:
    """A new binary file that is written once, front to back.

    Raises:
        OSError: from any method; `ENOSPC` when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._hash = hashlib.sha256()
        self._file = path.open("xb")

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)

    def write_array(self, array: NDArray[np.generic]) -> None:
        """Append the values in C order; an array that is not contiguous is copied block by block, never as a whole."""
        if array.flags.c_contiguous:
            self.write(array.reshape(-1).view(np.uint8).data)
            return
        rows = max(1, BLOCK_BYTES * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), rows):
            self.write(np.ascontiguousarray(array[start : start + rows]).reshape(-1).view(np.uint8).data)

    def align(self, bytes_: int) -> None:
        """Append zeros up to the next multiple of `bytes_`."""
        self.write(bytes(-self.bytes % bytes_))

    def close(self) -> FileRecord:
        """Put the file on the disk and close it."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return FileRecord(self.bytes, self._hash.hexdigest())

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without a promise that anything is on the disk; nothing happens if the file is closed."""
        with suppress(OSError):  # the buffer may not fit on the disk; the file is thrown away anyway
            self._file.close()
