"""A real `tritonserver` on free loopback ports, started once for all tests of this folder."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from omni_client import OmniClient

from deploy.local.config import ServerConfig
from deploy.local.runtime import install
from deploy.local.server import TritonServer
from tests.server.metrics import Metrics


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


def start(engines: Path, log: Path) -> TritonServer:
    http, grpc, metrics = free_ports(3)
    config = ServerConfig(engines=engines, http_port=http, grpc_port=grpc, metrics_port=metrics, log=log)
    return TritonServer(install(), config)


@pytest.fixture(scope="session")
def server(small_engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    running = start(small_engines, tmp_path_factory.mktemp("small") / "tritonserver.log")
    with running:
        yield running
        assert running.alive, running.config.log.read_text(errors="replace")[-3000:]


@pytest.fixture(scope="session")
def grpc_url(server: TritonServer) -> str:
    return f"grpc://{server.config.address}:{server.config.grpc_port}"


@pytest.fixture(scope="session")
def http_url(server: TritonServer) -> str:
    return f"http://{server.config.address}:{server.config.http_port}"


@pytest.fixture
def client(grpc_url: str) -> Iterator[OmniClient]:
    with OmniClient(grpc_url) as connected:
        yield connected


@pytest.fixture(scope="session")
def metrics(server: TritonServer) -> Metrics:
    return Metrics(f"http://{server.config.address}:{server.config.metrics_port}/metrics")
