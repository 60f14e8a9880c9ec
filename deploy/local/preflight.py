"""What must hold before Triton starts. Every failed check is one sentence that says what to do."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import socket
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from deploy.local.config import ServerConfig
from python_backends.engine_folder import EngineFolder, EngineFolderError

MIN_SHM_BYTES = 256 * 2**20


class PreflightError(RuntimeError):
    """Something is missing; the message lists every failed check."""


def check(config: ServerConfig) -> None:
    """Run every check.

    Raises:
        PreflightError: one line for each check that failed.
    """
    failures = [*_machine(), *_libpython(), *_shared_memory(), *_ports(config), *_engines(config)]
    if failures:
        raise PreflightError("\n".join(failures))


def _machine() -> Iterator[str]:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        yield f"machine: found {platform.system()} {platform.machine()}; allowed: Linux x86_64"
    name, version = platform.libc_ver()
    if name == "glibc" and tuple(map(int, version.split(".")[:2])) < (2, 35):
        yield f"glibc: found {version}; allowed: 2.35 or newer (Debian 12, Ubuntu 22.04)"


def _libpython() -> Iterator[str]:
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    libdir = sysconfig.get_config_var("LIBDIR")
    if libdir and (Path(libdir) / name).exists():
        return
    try:
        ctypes.CDLL(name)
    except OSError:
        package = name.split(".so")[0]
        yield f"{name}: not found; Triton's Python backend needs it (Debian, Ubuntu: `apt-get install {package}`)"


def _shared_memory() -> Iterator[str]:
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0  # noqa: PTH112
    if free < MIN_SHM_BYTES:
        yield f"/dev/shm: {free >> 20} MB free; needed: {MIN_SHM_BYTES >> 20} MB (in a container: --shm-size)"


def _ports(config: ServerConfig) -> Iterator[str]:
    named = (("HTTP_PORT", config.http_port), ("GRPC_PORT", config.grpc_port), ("METRICS_PORT", config.metrics_port))
    if len({port for _, port in named}) < len(named):
        yield "HTTP_PORT, GRPC_PORT, METRICS_PORT: the same port twice; allowed: three different ones"
    for name, port in named:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((config.address, port))
            except OSError as error:
                reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
                yield f"{name}: {config.address}:{port} {reason}; set {name} to a free port"


def _engines(config: ServerConfig) -> Iterator[str]:
    try:
        EngineFolder.open(config.engines)
    except EngineFolderError as error:
        yield f"{error} (build it with `python -m build_engines CHECKPOINT`)"
