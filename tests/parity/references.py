"""What transformers computed, as stored beside this module: `references/<checkpoint>.json` and `.npz`.

Large tensors are stored as values at sampled places, which `sampled` draws again from the tensor's name and size, and
as the mean and the root of the mean square of all values.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from build_engines.random_checkpoint.draw import normal

Array = NDArray[Any]

# Grids (frames, rows, columns in patches) and lengths (mel frames) of drawn inputs, so that encoders are compared on
# exactly equal inputs: one token, odd shapes, chunks and attention windows just met, missed and passed.
GRIDS = ((1, 2, 2), (1, 4, 6), (1, 6, 2), (1, 10, 14), (3, 8, 8), (2, 20, 26), (1, 38, 50))
LENGTHS = (1, 5, 99, 100, 101, 250, 399, 400, 401, 799, 800, 801, 1735)

FOLDER = Path(__file__).parent / "references"
TOP = 20  # log-probabilities that are stored of each step


def places(name: str, size: int, count: int) -> NDArray[np.int64]:
    """`count` places within `size`, the same ones for the same name everywhere."""
    raw = np.random.PCG64(np.random.SeedSequence(zlib.crc32(name.encode()))).random_raw(count)
    return (raw % np.uint64(size)).astype(np.int64)


def sampled(name: str, values: Array, count: int) -> Array:
    """Values of the flattened tensor at `places`."""
    return values.reshape(-1)[places(name, values.size, count)]


@dataclass(frozen=True)
class Answer:
    """A greedy answer. `margins` are best minus second-best logit at each step, the step that ended it included.

    `router_gap` is the smallest distance between the last expert chosen and the first one left out, over all tokens and
    layers: where it is tiny, rounding alone may pick another expert.
    """

    tokens: tuple[int, ...]  # without the end token
    text: str
    finish_reason: str
    margins: tuple[float, ...]
    router_gap: float


@dataclass(frozen=True, eq=False)
class Reference:
    """All that is stored of one checkpoint. Names in `arrays`:

    prompt/NAME/ids [T], /positions [3, T], /logprobs [steps, TOP], /logprob_ids [steps, TOP], /more_logits;
    vision/KEY/grid [3], /pixels (uint8), /pixel_sums, /embedding, /embedding_sums, and tap0... for deepstack;
    audio/KEY/mel, /mel_sums, /embedding, /embedding_sums, /length [1];
    drawn/vision/GRID and drawn/audio/LENGTH: the encoders' outputs for drawn inputs.
    """

    versions: dict[str, str]
    weights_sha256: str
    answers: dict[str, Answer]
    rope_deltas: dict[str, int]
    logit_noise: float  # largest difference between fp32 and fp64 logits
    router_noise: float  # 99 % of the differences between the routers' logits are smaller
    arrays: dict[str, Array]

    @property
    def noise(self) -> float:
        """What another implementation's fp32 logits may differ by: several times what this one's differ from fp64."""
        return 8 * self.logit_noise

    def may_route_otherwise(self, prompt: str) -> bool:
        """Whether two experts are so close somewhere that rounding may choose the other one, and change everything."""
        return self.answers[prompt].router_gap < self.router_noise

    def certain_steps(self, prompt: str) -> int:
        """Steps of an answer, from its start, that do not hang on rounding; the one that ended it is one too."""
        if self.may_route_otherwise(prompt):
            return 0
        margins = self.answers[prompt].margins
        return next((step for step, margin in enumerate(margins) if margin < self.noise), len(margins))

    def save(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "versions": self.versions,
            "weights_sha256": self.weights_sha256,
            "logit_noise": self.logit_noise,
            "router_noise": self.router_noise,
            "prompts": {
                prompt: {"rope_delta": self.rope_deltas[prompt], **asdict(answer)}
                for prompt, answer in self.answers.items()
            },
        }
        text = json.dumps(document, ensure_ascii=False, indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        np.savez_compressed(folder / f"{name}.npz", **self.arrays)

    @classmethod
    def load(cls, name: str, folder: Path = FOLDER) -> Reference:
        document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        with np.load(folder / f"{name}.npz") as stored:
            arrays = dict(stored)
        answers, deltas = {}, {}
        for prompt, entry in document["prompts"].items():
            deltas[prompt] = entry.pop("rope_delta")
            answers[prompt] = Answer(**{**entry, "tokens": tuple(entry["tokens"]), "margins": tuple(entry["margins"])})
        return cls(
            document["versions"],
            document["weights_sha256"],
            answers,
            deltas,
            document["logit_noise"],
            document["router_noise"],
            arrays,
        )


def weights_sha256(checkpoint: Path) -> str:
    """Digest of a checkpoint's weight files in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(checkpoint.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def drawn_patches(grid: tuple[int, int, int]) -> NDArray[np.float32]:
    """[patches, values] like pixel values."""
    frames, rows, columns = grid
    return 0.5 * normal((frames * rows * columns, 3 * 2 * 16 * 16), 0, f"patches {grid}")


def drawn_mel(length: int) -> NDArray[np.float32]:
    """[frames, bins] like mel features."""
    return 0.4 * normal((length, 128), 0, f"mel {length}")


def sums(values: Array) -> Array:
    """[2] fp64: the mean and the root of the mean square."""
    wide = values.astype(np.float64)
    return np.array([wide.mean(), np.sqrt((wide**2).mean())])


def differences(stored: Reference, made: Reference) -> list[str]:
    """What differs between two references by more than rounding on another machine; one sentence each."""
    found = []
    if stored.weights_sha256 != made.weights_sha256:
        found.append("the weights of the checkpoint differ")
    for name in sorted(set(stored.answers) ^ set(made.answers)):
        found.append(f"{name}: only one of the two has this prompt")
    for name in sorted(set(stored.answers) & set(made.answers)):
        found += _answer_differences(name, stored.answers[name], made.answers[name], stored.noise)
        if stored.rope_deltas[name] != made.rope_deltas[name]:
            found.append(f"{name}: rope delta {stored.rope_deltas[name]}, now {made.rope_deltas[name]}")
    return found + _array_differences(stored, made.arrays)


def _answer_differences(name: str, stored: Answer, made: Answer, noise: float) -> list[str]:
    for step, (before, now) in enumerate(zip(stored.tokens, made.tokens, strict=False)):
        if before != now:
            near_tie = stored.margins[step] < noise
            return [] if near_tie else [f"{name}: token {step} was {before}, now {now}"]
    if len(stored.tokens) != len(made.tokens) and stored.margins[min(len(stored.tokens), len(made.tokens))] > noise:
        return [f"{name}: {len(stored.tokens)} tokens, now {len(made.tokens)}"]
    return []


def _array_differences(reference: Reference, made: Mapping[str, Array]) -> list[str]:
    stored = reference.arrays
    found = [f"{name}: only one of the two has this array" for name in sorted(set(stored) ^ set(made))]
    for name in sorted(set(stored) & set(made)):
        if name.endswith(("/logprobs", "/logprob_ids")):
            continue  # these follow the tokens, which are compared above
        if name.endswith("/more_logits") and reference.may_route_otherwise(name.split("/")[1]):
            continue
        before, now = stored[name], made[name]
        if before.shape != now.shape:
            found.append(f"{name}: shape {before.shape}, now {now.shape}")
        elif before.dtype.kind in "iu" and name.endswith("/pixels"):
            if np.mean(np.abs(before.astype(int) - now.astype(int)) > 1) > 1e-3:
                found.append(f"{name}: pixel values differ")
        elif before.dtype.kind in "iu":
            if not np.array_equal(before, now):
                found.append(f"{name}: values differ")
        elif not np.allclose(before, now, rtol=1e-4, atol=max(1e-4, reference.noise)):
            found.append(f"{name}: values differ by up to {np.abs(before - now).max():.2g}")
    return found
