"""The Triton binary distribution: fetched once as a pinned wheel, unpacked, and laid out for this interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / ".runtime" / "triton"
LOCK = ROOT / "requirements" / "triton.lock"


class RuntimeInstallError(RuntimeError):
    """Triton could not be fetched or laid out."""


@dataclass(frozen=True)
class TritonRuntime:
    """Where an unpacked Triton lies."""

    folder: Path

    @property
    def binary(self) -> Path:
        return self.folder / "pytriton" / "tritonserver" / "bin" / "tritonserver"

    @property
    def backends(self) -> Path:
        return self.folder / "backends"

    @property
    def library_path(self) -> list[Path]:
        """Triton's own libraries, and libpython of this interpreter for the Python stub."""
        libdir = sysconfig.get_config_var("LIBDIR")
        return [self.folder / "nvidia_pytriton.libs", *([Path(libdir)] if libdir else [])]

    def environment(self) -> dict[str, str]:
        """Environment for `tritonserver`: the stub finds its packages through PATH, not PYTHONPATH."""
        env = dict(os.environ)
        known = env.get("LD_LIBRARY_PATH", "")
        env["LD_LIBRARY_PATH"] = os.pathsep.join([*map(str, self.library_path), *([known] if known else [])])
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
        return env


def install(folder: Path = RUNTIME) -> TritonRuntime:
    """Fetch and lay out Triton below `folder`; does nothing if it is there already.

    Raises:
        RuntimeInstallError: the wheel cannot be had, or it has no stub for this Python.
    """
    runtime = TritonRuntime(folder)
    stub = runtime.backends / "python" / "triton_python_backend_stub"
    if runtime.binary.exists() and stub.exists():
        return runtime
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        aside = Path(work) / "triton"
        _unpack(_download(Path(work)), aside)
        _lay_out_backend(TritonRuntime(aside))
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    return runtime


def _download(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
    result = subprocess.run(
        [*pip, "--no-deps", "--require-hashes", "-r", str(LOCK), "-d", str(folder)], capture_output=True, text=True
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        reason = result.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
        raise RuntimeInstallError(f"Triton's wheel ({LOCK.name}) could not be fetched: {reason[0]}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def _lay_out_backend(runtime: TritonRuntime) -> None:
    triton = runtime.folder / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = triton / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        known = ", ".join(sorted(p.name for p in stub.parents[1].iterdir()))
        raise RuntimeInstallError(f"Triton's Python stub: none for Python {version}; allowed: {known}")
    target = runtime.backends / "python"
    target.mkdir(parents=True)
    for source in (stub, *(triton / "backends" / "python").iterdir()):
        shutil.copy(source, target / source.name)
    for executable in (target / stub.name, runtime.binary):
        executable.chmod(0o755)
