"""What a server on this machine is started with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local.runtime import ROOT


@dataclass(frozen=True)
class ServerConfig:
    """Addresses, ports and folders of one `tritonserver`."""

    engines: Path
    repository: Path = ROOT / "model_repository"
    address: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    exit_seconds: int = 20  # that running requests get to finish when the server is stopped
    log: Path = ROOT / ".runtime" / "tritonserver.log"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> ServerConfig:
        """Read OMNI_ENGINES, OMNI_ADDRESS, HTTP_PORT, GRPC_PORT and METRICS_PORT.

        Raises:
            ValueError: a port is not a number from 1 to 65535.
        """
        return cls(
            engines=Path(environ.get("OMNI_ENGINES") or ROOT / "engines" / "current"),
            address=environ.get("OMNI_ADDRESS") or "127.0.0.1",
            http_port=_port(environ, "HTTP_PORT", 8000),
            grpc_port=_port(environ, "GRPC_PORT", 8001),
            metrics_port=_port(environ, "METRICS_PORT", 8002),
        )


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ValueError(f"{name}: found {text!r}; allowed: a number from 1 to 65535")
    return int(text)
