"""The folder of engine folders: `DIR/<name>/<version>` and the link `DIR/current`, safe for builds side by side."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from build_engines.errors import BuildError
from python_backends.engine_folder import EngineFolder, EngineFolderError, Manifest

CURRENT = "current"
_LOCK = ".lock"
_STAGING = ".building-"
_OWNER = ".owner"


class EngineStore:
    """Versions of one engine in `folder`. A version is written aside and renamed when it is whole.

    Raises:
        OSError: from any method that writes.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._link = folder / CURRENT
        if self._link.exists() and not self._link.is_symlink():
            raise BuildError(f"{self._link}: is not a link; move it away, the link to the newest engines goes there")

    def versions(self) -> list[Path]:
        """Folders of all versions, the newest first."""
        parent = self.folder / self.name
        numbers = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()] if parent.is_dir() else []
        return [parent / str(number) for number in sorted(numbers, reverse=True)]

    def find(self, wanted: Callable[[Manifest], bool]) -> Path | None:
        """The newest usable version with such a manifest."""
        for path in self.versions():
            with suppress(EngineFolderError):
                if wanted(EngineFolder.open(path).manifest):
                    return path
        return None

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A new folder to build in. It is removed at the end, however the end comes, unless it was published.

        What builds left behind that were killed without a chance to clean up is removed as well.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = self.folder / f"{_STAGING}{secrets.token_hex(4)}"
        owner: int | None = None
        try:
            with self._locked():
                self._remove_abandoned()
                folder.mkdir()
                owner = os.open(folder / _OWNER, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
                fcntl.flock(owner, fcntl.LOCK_EX)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if owner is not None:
                os.close(owner)

    def publish(self, staging: Path) -> Path:
        """Give a finished folder the next version number and move the link to it; returns its path."""
        with self._locked():
            (staging / _OWNER).unlink()
            _sync(staging)
            number = max((int(path.name) for path in self.versions()), default=0) + 1
            target = self.folder / self.name / str(number)
            target.parent.mkdir(exist_ok=True)
            staging.rename(target)
            _sync(target.parent)
            self._point(target)
        return target

    def select(self, version: Path) -> None:
        """Move the link to a version that is there already."""
        with self._locked():
            self._point(version)

    def _point(self, version: Path) -> None:
        fresh = self.folder / f".{CURRENT}-{secrets.token_hex(4)}"
        fresh.symlink_to(version.relative_to(self.folder))
        try:
            fresh.replace(self._link)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        _sync(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self.folder / _LOCK, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _remove_abandoned(self) -> None:
        """Remove folders whose builder holds no lock on them any more; the caller holds the store's lock."""
        for folder in self.folder.glob(f"{_STAGING}*"):
            try:
                owner = os.open(folder / _OWNER, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass
            finally:
                os.close(owner)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
