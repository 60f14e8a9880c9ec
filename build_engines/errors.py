"""Why a build cannot go on. Each carries one sentence for the person at the terminal."""

from __future__ import annotations


class BuildError(Exception):
    """Base of all errors that end a build; `str(error)` is the sentence that is printed."""


class CheckpointError(BuildError):
    """The checkpoint is not one that can be built: a file, a tensor or a setting is missing or wrong."""


class GraphError(BuildError):
    """A graph was put together wrongly; a fault of this program, not of the checkpoint."""
