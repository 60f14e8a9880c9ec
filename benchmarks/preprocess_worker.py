"""Prepares media with this project's preprocessor: python -m benchmarks.preprocess_worker ENGINES

Reads `KIND PATH` lines, answers each with the seconds that one request took, from encoded bytes to tensors.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from python_backends.engine_folder import EngineFolder
from python_backends.messages import OmniRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.preprocessor import Preprocessor

TEXT = b"What is this?"


def main() -> None:
    preprocessor = Preprocessor(EngineFolder.open(Path(sys.argv[1])), Limits())
    print("ready", flush=True)
    for line in sys.stdin:
        kind, path = line.rstrip("\n").split(" ", 1)
        files = (Path(path).read_bytes(),)
        started = time.perf_counter()
        request = OmniRequest(
            text_input=TEXT,
            image=files if kind == "image" else (),
            audio=files if kind == "audio" else (),
            video=files if kind == "video" else (),
        )
        prepared = preprocessor.prepare(request)
        print(time.perf_counter() - started, len(prepared.input_ids), flush=True)


if __name__ == "__main__":
    main()
