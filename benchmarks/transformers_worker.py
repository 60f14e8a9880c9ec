"""Prepares media with transformers' processor: python transformers_worker.py CHECKPOINT THREADS

The same as `preprocess_worker`, for an environment with transformers and torch. Decoding is the usual fast way: Pillow,
libsndfile and soxr, and PyAV with threads, turning only the sampled frames into arrays.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import av
import numpy as np
import soundfile
import soxr
import torch
from PIL import Image
from transformers import Qwen3OmniMoeProcessor

TEXT = "What is this?"
RATE = 16000
FRAMES_A_SECOND = 2.0


def load_image(data: bytes) -> Image.Image:
    image: Image.Image = Image.open(io.BytesIO(data)).convert("RGB")
    return image


def load_sound(data: bytes) -> Any:
    """[samples] fp32 at 16 kHz."""
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    mono = samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0]
    return mono if rate == RATE else soxr.resample(mono, rate, RATE, quality="HQ")


def load_film(data: bytes, threads: int) -> Any:
    """[frames, h, w, 3]: two a second, as the processor would pick them from all."""
    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "AUTO", threads
        total, rate = stream.frames, stream.average_rate
        assert rate is not None
        count = int(total / rate * FRAMES_A_SECOND) // 2 * 2
        wanted = {index * total // count for index in range(count)}
        frames = [
            frame.to_ndarray(format="rgb24") for index, frame in enumerate(container.decode(stream)) if index in wanted
        ]
    return np.stack(frames)


def prepare(processor: Any, kind: str, data: bytes, threads: int) -> Any:
    media: dict[str, Any]
    if kind == "image":
        media = {"images": [load_image(data)]}
    elif kind == "audio":
        media = {"audio": [load_sound(data)], "audio_kwargs": {"sampling_rate": RATE}}
    else:
        options = {"fps": FRAMES_A_SECOND, "do_sample_frames": False, "cap_pixels_per_frame": False}
        media = {"videos": [load_film(data, threads)], "videos_kwargs": options}
    messages = [{"role": "user", "content": [{"type": kind}, {"type": "text", "text": TEXT}]}]
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return processor(text=text, return_tensors="pt", **media)


def main() -> None:
    threads = int(sys.argv[2])
    torch.set_num_threads(threads)
    processor = Qwen3OmniMoeProcessor.from_pretrained(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        kind, path = line.rstrip("\n").split(" ", 1)
        data = Path(path).read_bytes()
        started = time.perf_counter()
        inputs = prepare(processor, kind, data, threads)
        print(time.perf_counter() - started, inputs["input_ids"].shape[1], flush=True)


if __name__ == "__main__":
    main()
