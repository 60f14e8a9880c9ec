"""The file that keeps what was measured: one section for each kind of run, raw values included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine

FILE = "benchmarks.json"
Section = Mapping[str, Any]


@dataclass
class Results:
    """Sections by name: `engine`, `triton`, `preprocess`."""

    sections: dict[str, Section] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Results:
        """What is stored in `folder`; empty if nothing is."""
        path = folder / FILE
        return cls(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})

    def add(self, name: str, measured: Any, command: str) -> None:
        """Replace a section by what was measured now, a dataclass."""
        self.sections[name] = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": command,
            "machine": asdict(Machine.this()),
            **_rounded(asdict(measured)),
        }

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.sections, indent=1)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
