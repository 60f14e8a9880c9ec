"""One `tritonserver` process: started, waited for, stopped, and cleaned up after."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from deploy.local.config import ServerConfig
from deploy.local.runtime import TritonRuntime

READY_SECONDS = 120.0
STOP_SECONDS = 10.0
# Triton 24.10 keeps a whole HTTP body on the stack of the thread that reads it: with the usual 8 MB, a body of 6 MB
# ends the process. This covers all that the limits of preprocess let through, and leaves room to refuse larger ones.
STACK_KILOBYTES = 256 * 1024
# Media pass through many threads; with a heap for each of them, the processes would keep several times what they need.
MEMORY = {"MALLOC_ARENA_MAX": "2"}
WITH_STACK = ("/bin/sh", "-c", f'ulimit -S -s {STACK_KILOBYTES}; exec "$0" "$@"')


class ServerFailed(RuntimeError):
    """Triton did not come up, or died; the message holds the log's reason."""


class TritonServer:
    """A context manager around the process. Engine folder and ports come from the config."""

    def __init__(
        self, runtime: TritonRuntime, config: ServerConfig, extra: tuple[str, ...] = (), env: Mapping[str, str] = {}
    ) -> None:
        self._runtime = runtime
        self.config = config
        self._extra = extra
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self.exit_status: int | None = None  # negative: the signal that ended it
        # A killed stub leaves its region behind: a prefix of our own lets us remove it without touching others'.
        self._shm_prefix = f"omni_{uuid.uuid4().hex[:12]}_"

    def __enter__(self) -> TritonServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("the server was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until every model is ready.

        Raises:
            ServerFailed: it exited, or was not ready in time.
        """
        config = self.config
        config.log.parent.mkdir(parents=True, exist_ok=True)
        command = [
            *WITH_STACK,
            str(self._runtime.binary),
            f"--model-repository={config.repository}",
            f"--backend-directory={self._runtime.backends}",
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            f"--http-address={config.address}",
            f"--http-port={config.http_port}",
            f"--grpc-address={config.address}",
            f"--grpc-port={config.grpc_port}",
            f"--metrics-address={config.address}",
            f"--metrics-port={config.metrics_port}",
            f"--exit-timeout-secs={config.exit_seconds}",
            "--disable-auto-complete-config",  # the configs are complete, and it would start every model twice
            *self._extra,
        ]
        env = {**self._runtime.environment(), "OMNI_ENGINES": str(config.engines.resolve()), **MEMORY, **self._env}
        with config.log.open("wb") as log:
            # Its own session: Ctrl-C in the terminal reaches us, and we stop it in order.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self) -> None:
        url = f"http://{self.config.address}:{self.config.http_port}/v2/health/ready"
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"tritonserver exited while starting: {self._reason()} (log: {self.config.log})")
            try:
                with urllib.request.urlopen(url, timeout=1.0) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.05)
        raise ServerFailed(f"tritonserver was not ready after {READY_SECONDS:.0f} s (log: {self.config.log})")

    def _reason(self) -> str:
        lines = self.config.log.read_text(errors="replace").splitlines()
        for sign in ("failed to load '", "Invalid argument", "error:"):
            for line in lines:
                if sign in line:
                    sentence = line[line.index(sign) :] if sign != "error:" else line
                    return sentence.split("\\n")[0].strip()  # what follows is the model's traceback
        return "no reason in the log"

    def wait(self) -> int:
        """Block until the process ends by itself; its exit status."""
        return self._process.wait() if self._process is not None else 0

    def stop(self) -> None:
        """Let it finish what runs, then end it, and remove its shared memory."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self.config.exit_seconds + STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # A server that gave up on a running request, or crashed, leaves the processes of its Python models behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.exit_status = process.returncode
        for region in Path("/dev/shm").glob(f"{self._shm_prefix}*"):
            region.unlink(missing_ok=True)
