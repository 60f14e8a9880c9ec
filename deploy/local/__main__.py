"""`python -m deploy.local install|preflight|serve`: Triton on this machine, configured by the environment."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from deploy.local import preflight
from deploy.local.config import ServerConfig
from deploy.local.runtime import RuntimeInstallError, install
from deploy.local.server import ServerFailed, TritonServer


def serve(config: ServerConfig) -> int:
    """Run the server in the foreground until Ctrl-C, SIGTERM or its own end."""
    preflight.check(config)
    server = TritonServer(install(), config)

    def leave(signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signum)

    signal.signal(signal.SIGTERM, leave)
    try:
        with server:
            print(f"ready: http://{config.address}:{config.http_port} grpc://{config.address}:{config.grpc_port}")
            print(f"metrics: http://{config.address}:{config.metrics_port}/metrics   log: {config.log}", flush=True)
            status = server.wait()
            print(f"error: tritonserver ended by itself with status {status} (log: {config.log})", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        print("stopped" if server.exit_status == 0 else "stopped; requests were still running", flush=True)
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    parser.add_argument("command", choices=("install", "preflight", "serve"))
    command = parser.parse_args().command
    try:
        if command == "install":
            install()
            return 0
        config = ServerConfig.from_environment()
        if command == "preflight":
            preflight.check(config)
            print("preflight: all checks passed")
            return 0
        return serve(config)
    except (RuntimeInstallError, preflight.PreflightError, ServerFailed, ValueError) as error:
        print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
