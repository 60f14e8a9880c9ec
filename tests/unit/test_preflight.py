"""What a newcomer reads when the machine is not ready."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import preflight
from deploy.local.config import ServerConfig

ROOT = Path(__file__).parents[2]


def failures(config: ServerConfig) -> str:
    with pytest.raises(preflight.PreflightError) as caught:
        preflight.check(config)
    return str(caught.value)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_taken_port_is_named_with_the_variable_that_moves_it(taken_port: int, tmp_path: Path) -> None:
    config = ServerConfig(engines=tmp_path, grpc_port=taken_port)
    assert f"GRPC_PORT: 127.0.0.1:{taken_port} is taken; set GRPC_PORT to a free port" in failures(config)


def test_the_same_port_twice_is_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(ServerConfig(engines=tmp_path), http_port=8001, grpc_port=8001)
    assert "the same port twice" in failures(config)


def test_a_missing_engine_folder_says_how_to_build_one(tmp_path: Path) -> None:
    text = failures(ServerConfig(engines=tmp_path / "nowhere"))
    assert "nowhere" in text and "python -m build_engines" in text


@pytest.mark.parametrize("port", ["http", "0", "65536", "-1"])
def test_a_port_that_is_no_port_is_refused_with_what_is_allowed(port: str) -> None:
    with pytest.raises(ValueError, match=r"HTTP_PORT: found .* allowed: a number from 1 to 65535"):
        ServerConfig.from_environment({"HTTP_PORT": port})


def test_ports_and_engines_come_from_the_environment(tmp_path: Path) -> None:
    config = ServerConfig.from_environment({"HTTP_PORT": "9000", "OMNI_ENGINES": str(tmp_path)})
    assert (config.http_port, config.grpc_port, config.engines, config.address) == (9000, 8001, tmp_path, "127.0.0.1")


def test_an_unsupported_python_gets_one_sentence() -> None:
    program = (
        "import sys, runpy; sys.version_info = (3, 9, 1, 'final', 0); sys.argv = ['bootstrap.py', 'v', 'l'];"
        "runpy.run_path('deploy/local/bootstrap.py', run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("error: Python: found 3.9")
    assert "allowed: 3.11 or 3.12" in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_missing_libpython_gets_one_sentence_that_names_the_package() -> None:
    program = (
        "import ctypes, sys, sysconfig, runpy\n"
        "sys.argv = ['bootstrap.py', 'v', 'l']; sys.base_prefix = '/nonexistent'\n"
        "def missing(name):\n    raise OSError(name)\n"
        "ctypes.CDLL = missing; sysconfig.get_config_var = lambda name: None\n"
        "runpy.run_path('deploy/local/bootstrap.py', run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert "libpython3." in result.stderr and "apt-get install libpython3." in result.stderr
    assert len(result.stderr.splitlines()) == 1
