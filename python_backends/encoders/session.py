"""How the encoders open their graphs in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnxruntime

# A provider's name, or its name and options; ONNX Runtime tries them in order for every operator.
Provider = str | tuple[str, Mapping[str, str]]
CPU: tuple[Provider, ...] = ("CPUExecutionProvider",)


def open_session(
    path: Path, threads: int, providers: Sequence[Provider], *, keep_memory: bool
) -> onnxruntime.InferenceSession:
    """A session whose runs use `threads` threads and which costs no processor time between runs.

    With `keep_memory` it holds on to the memory of its largest run, which saves the next run from getting it anew from
    the operating system, page by page: right where runs are of bounded size. Without, each run gives its memory back.

    Raises:
        ValueError: fewer than one thread, or a provider that this ONNX Runtime does not have (it would silently run
            elsewhere).
    """
    if threads < 1:
        raise ValueError(f"threads: found {threads}; allowed: 1 or more")
    available = onnxruntime.get_available_providers()
    for provider in providers:
        name = provider if isinstance(provider, str) else provider[0]
        if name not in available:
            raise ValueError(f"providers: found {name}; allowed: {', '.join(available)}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Memory patterns are kept for every shape ever seen, and media come in all shapes.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = keep_memory
    return onnxruntime.InferenceSession(str(path), options, providers=list(providers))
