"""Starting and stopping: nothing stays behind, whatever was going on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psutil

from deploy.local.runtime import install
from deploy.local.server import TritonServer
from tests.server.conftest import start
from tests.server.metrics import Metrics, wait_until
from tests.server.test_cancel import ENDLESS, open_stream


def test_a_server_stopped_in_the_middle_of_an_answer_leaves_no_process_behind(
    small_engines: Path, tmp_path: Path
) -> None:
    config = dataclasses.replace(start(small_engines, tmp_path / "log").config, exit_seconds=2)
    regions = set(Path("/dev/shm").iterdir())
    with TritonServer(install(), config) as server:
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        assert len(processes) > 5
        client = open_stream(f"grpc://{config.address}:{config.grpc_port}", ENDLESS)
        metrics = Metrics(f"http://{config.address}:{config.metrics_port}/metrics")
        assert wait_until(lambda: metrics.slots_used() == 1, 10.0)
    assert wait_until(lambda: not any(process.is_running() for process in processes), 5.0)
    assert set(Path("/dev/shm").iterdir()) <= regions
    client.close()
