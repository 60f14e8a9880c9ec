"""Runs transformers on one checkpoint and collects what `references.Reference` stores. Needs torch.

Pixel values are stored as transformers' processors make them with torchvision. Everything after them is computed from
pictures and frames that Pillow scaled, as transformers' Pillow backend does: the two differ by 1 of 255 in up to one
value of a hundred, and a random model answers that with other words.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import Qwen3OmniMoeForConditionalGeneration, Qwen3OmniMoeProcessor
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerTextTopKRouter

from tests.parity.prompts import MAX_TOKENS, MEDIA, PROMPTS, Prompt, conversation
from tests.parity.reference_media import FRAMES_A_SECOND, RATE, Film, load_film, load_image, load_sound
from tests.parity.references import (
    GRIDS,
    LENGTHS,
    TOP,
    Answer,
    Array,
    Reference,
    drawn_mel,
    drawn_patches,
    sampled,
    sums,
    weights_sha256,
)

PIXELS, MEL, EMBEDDING, DRAWN, LOGITS = 2048, 1024, 256, 1024, 64
_PACKAGES = ("torch", "transformers", "torchvision", "tokenizers", "numpy", "pillow", "av", "soundfile", "soxr")
_IMAGES = frozenset({".jpg", ".png", ".webp", ".gif", ".bmp", ".tiff"})
_SOUNDS = frozenset({".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a"})


class EachSoundAlone(Qwen3OmniMoeProcessor):
    """The processor, but every sound's features are computed alone instead of after padding them together.

    Padding changes the last frame of the shorter sounds, and may add one.
    """

    def _process_audio(self, audio: list[Array], **options: Any) -> tuple[dict[str, Any], list[str]]:
        alone = [super(EachSoundAlone, self)._process_audio([sound], **options) for sound in audio]
        features = [inputs["input_features"][0] for inputs, _ in alone]
        longest = max(feature.shape[-1] for feature in features)
        merged = {
            "input_features": np.stack([_pad(feature, longest) for feature in features]),
            "feature_attention_mask": np.stack(
                [_pad(np.asarray(inputs["feature_attention_mask"][0]), longest) for inputs, _ in alone]
            ),
            "num_audio_tokens": np.concatenate([inputs["num_audio_tokens"] for inputs, _ in alone]),
        }
        return merged, [text for _, texts in alone for text in texts]


def _pad(values: Array, length: int) -> Array:
    missing = length - values.shape[-1]
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])


class ReferenceModel:
    """transformers' own processor and fp32 model of a checkpoint folder."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.processor = EachSoundAlone.from_pretrained(checkpoint)
        model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
        )
        self.thinker = model.thinker.eval()
        self.thinker.model.get_audio_features = self._audio_features
        end = model.generation_config.eos_token_id
        self.end_tokens = [end] if isinstance(end, int) else list(end)
        self._router_gap = float("inf")
        self._router_logits: list[torch.Tensor] = []
        for module in self.thinker.modules():
            if isinstance(module, Qwen3OmniMoeThinkerTextTopKRouter):
                module.register_forward_hook(self._see_router)

    def _see_router(self, module: torch.nn.Module, _inputs: object, outputs: tuple[torch.Tensor, ...]) -> None:
        self._router_logits.append(outputs[0])
        best = torch.topk(outputs[0], module.top_k + 1, dim=-1).values
        self._router_gap = min(self._router_gap, float((best[:, -2] - best[:, -1]).min()))

    def _audio_features(
        self, features: torch.Tensor, mask: torch.Tensor, _lengths: object = None, **_options: object
    ) -> BaseModelOutput:
        """Every sound encoded alone, for the same reason as its features: beside a longer one it would be padded."""
        alone = [
            self.thinker.model.audio_tower(sound[:, :length], feature_lens=length[None]).last_hidden_state
            for sound, length in zip(features, mask.sum(-1), strict=True)
        ]
        return BaseModelOutput(last_hidden_state=torch.cat(alone))

    def _scaled(self, picture: Image.Image, size: Mapping[str, int]) -> Image.Image:
        """What Pillow makes of a picture, in the size that the processor will then leave alone."""
        factor = self.processor.image_processor.patch_size * self.processor.image_processor.merge_size
        limits = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
        height, width = smart_resize(picture.height, picture.width, factor=factor, **limits)
        # across, then down, as torchvision goes; Pillow alone may go down first, and the filter overshoots otherwise
        across = picture.resize((width, picture.height), Image.Resampling.BICUBIC)
        return across.resize((width, height), Image.Resampling.BICUBIC)

    def _scaled_image(self, image: Image.Image) -> Image.Image:
        return self._scaled(image, self.processor.image_processor.size)

    def _scaled_frames(self, film: Film) -> list[Array]:
        size = self.processor.videos_kwargs["size"]
        return [np.asarray(self._scaled(Image.fromarray(frame), size)) for frame in film.frames]

    def reference(self, report: Callable[[str], None]) -> Reference:
        """Run all media and all prompts; `report` hears what is being done."""
        arrays: dict[str, Array] = {}
        answers: dict[str, Answer] = {}
        deltas: dict[str, int] = {}
        with torch.inference_mode():
            for path in sorted(MEDIA.iterdir()):
                report(f"media {path.name}")
                arrays |= self._media(path)
            for number, prompt in enumerate(PROMPTS, 1):
                report(f"prompt {number} of {len(PROMPTS)}: {prompt.name}")
                inputs = self.inputs(prompt)
                arrays |= self._prompt_arrays(prompt, inputs, deltas)
                answers[prompt.name], more = self._answer(prompt, inputs)
                arrays |= more
            report("drawn inputs")
            arrays |= self._drawn()
            report("rounding noise")
            logit_noise, router_noise = self._noise()
        return Reference(
            versions={package: importlib.metadata.version(package) for package in _PACKAGES},
            weights_sha256=weights_sha256(self.checkpoint),
            answers=answers,
            rope_deltas=deltas,
            logit_noise=logit_noise,
            router_noise=router_noise,
            arrays=arrays,
        )

    def inputs(self, prompt: Prompt) -> dict[str, Any]:
        """The processor's tensors for a prompt, and the flag that `generate` needs beside them."""
        messages, names = conversation(prompt)
        text = self.processor.apply_chat_template(
            messages, tools=prompt.tools, add_generation_prompt=True, tokenize=False
        )
        images = [self._scaled_image(load_image(MEDIA / name)) for kind, name in names if kind == "image"]
        films = [load_film(MEDIA / name) for kind, name in names if kind == "video"]
        sounds, owners = _sounds_in_order(names, films, bool(prompt.use_audio_in_video))
        with_sound = any(owner is not None for owner in owners)
        inputs = dict(
            self.processor(
                text=text,
                images=images or None,
                audio=sounds or None,
                videos=[self._scaled_frames(film) for film in films] or None,
                videos_kwargs={
                    "fps": float(FRAMES_A_SECOND),
                    "do_sample_frames": False,
                    "cap_pixels_per_frame": False,
                },
                audio_from_video_indices=owners if with_sound else None,
                load_audio_from_video=with_sound,
                audio_kwargs={"sampling_rate": RATE},
                return_tensors="pt",
            )
        )
        inputs["use_audio_in_video"] = with_sound
        return inputs

    def _prompt_arrays(self, prompt: Prompt, inputs: dict[str, Any], deltas: dict[str, int]) -> dict[str, Array]:
        mask = inputs.get("feature_attention_mask")
        positions, delta = self.thinker.model.get_rope_index(
            inputs["input_ids"],
            inputs.get("image_grid_thw"),
            inputs.get("video_grid_thw"),
            inputs["attention_mask"],
            inputs["use_audio_in_video"],
            None if mask is None else mask.sum(-1),
            inputs.get("video_second_per_grid"),
        )
        deltas[prompt.name] = int(delta)
        return {
            f"prompt/{prompt.name}/ids": inputs["input_ids"][0].numpy().astype(np.int32),
            f"prompt/{prompt.name}/positions": positions[:, 0].numpy().astype(np.int32),
        }

    def _answer(self, prompt: Prompt, inputs: dict[str, Any]) -> tuple[Answer, dict[str, Array]]:
        self._router_gap = float("inf")
        self.thinker.model.rope_deltas = None
        result = self.thinker.generate(
            **inputs,
            max_new_tokens=MAX_TOKENS,
            do_sample=False,
            eos_token_id=self.end_tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
        logits = torch.cat(result.logits).numpy()  # [steps, vocab]
        made = result.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        stopped = made[-1] in self.end_tokens
        tokens = tuple(made[:-1] if stopped else made)
        order = np.argsort(-logits, axis=-1, kind="stable")[:, :TOP]
        top = np.take_along_axis(logits, order, axis=-1)
        logprobs = top - np.logaddexp.reduce(logits.astype(np.float64), axis=-1)[:, None]
        answer = Answer(
            tokens=tokens,
            text=self.processor.tokenizer.decode(tokens, skip_special_tokens=True),
            finish_reason="stop" if stopped else "length",
            margins=tuple(round(float(a - b), 6) for a, b in top[:, :2]),
            router_gap=round(self._router_gap, 8),
        )
        at = f"prompt/{prompt.name}"
        return answer, {
            f"{at}/logprobs": logprobs.astype(np.float32),
            f"{at}/logprob_ids": order.astype(np.int32),
            f"{at}/more_logits": sampled(f"{prompt.name}/more_logits", logits[0], LOGITS),
        }

    def _media(self, path: Path) -> dict[str, Array]:
        if path.suffix in _IMAGES:
            image = load_image(path)
            both = [
                self.processor.image_processor(images=[picture], return_tensors="pt")
                for picture in (image, self._scaled_image(image))
            ]
            grid = both[0]["image_grid_thw"]
            return self._vision(path.name, grid, *(processed["pixel_values"] for processed in both))
        if path.suffix in _SOUNDS:
            return self._sound(path.name, load_sound(path))
        film = load_film(path)
        both = [
            self.processor.video_processor(
                videos=[frames],
                size=self.processor.videos_kwargs["size"],
                do_sample_frames=False,
                cap_pixels_per_frame=False,
                return_tensors="pt",
            )
            for frames in (list(film.frames), self._scaled_frames(film))
        ]
        grid = both[0]["video_grid_thw"]
        arrays = self._vision(path.name, grid, *(processed["pixel_values_videos"] for processed in both))
        return arrays if film.sound is None else arrays | self._sound(path.name, film.sound)

    def _vision(self, key: str, grid: torch.Tensor, pixels: torch.Tensor, scaled: torch.Tensor) -> dict[str, Array]:
        at = f"vision/{key}"
        levels = torch.round((pixels + 1) * 127.5)
        if float((levels / 127.5 - 1 - pixels).abs().max()) > 1e-6:
            raise ValueError(f"{key}: pixel values are not whole 8-bit levels")
        features = self.thinker.model.visual(scaled, grid_thw=grid)
        arrays = {
            f"{at}/grid": grid[0].numpy().astype(np.int32),
            f"{at}/pixels": sampled(f"{at}/pixels", levels.numpy().astype(np.uint8), PIXELS),
            f"{at}/pixel_sums": sums(pixels.numpy()),
        }
        outputs = {"embedding": features.pooler_output}
        outputs |= {f"tap{index}": tap for index, tap in enumerate(features.deepstack_features)}
        for name, values in outputs.items():
            arrays[f"{at}/{name}"] = sampled(f"{at}/{name}", values.numpy(), EMBEDDING)
            arrays[f"{at}/{name}_sums"] = sums(values.numpy())
        return arrays

    def _sound(self, key: str, samples: Array) -> dict[str, Array]:
        at = f"audio/{key}"
        made = self.processor.feature_extractor(
            [samples],
            sampling_rate=RATE,
            padding=True,
            truncation=False,
            return_attention_mask=True,
            return_tensors="pt",
        )
        length = int(made["attention_mask"].sum())
        mel = made["input_features"][0, :, :length]
        embedding = self.thinker.model.audio_tower(mel, feature_lens=torch.tensor([length])).last_hidden_state
        frames = mel.T.contiguous().numpy()
        return {
            f"{at}/length": np.array([length], np.int32),
            f"{at}/mel": sampled(f"{at}/mel", frames, MEL),
            f"{at}/mel_sums": sums(frames),
            f"{at}/embedding": sampled(f"{at}/embedding", embedding.numpy(), EMBEDDING),
            f"{at}/embedding_sums": sums(embedding.numpy()),
        }

    def _drawn(self) -> dict[str, Array]:
        arrays = {}
        for grid in GRIDS:
            features = self.thinker.model.visual(torch.from_numpy(drawn_patches(grid)), grid_thw=torch.tensor([grid]))
            rows = torch.cat([features.pooler_output, *features.deepstack_features], dim=-1)
            name = f"drawn/vision/{'x'.join(map(str, grid))}"
            arrays[name] = sampled(name, rows.numpy(), DRAWN)
        for length in LENGTHS:
            mel = torch.from_numpy(drawn_mel(length)).T
            rows = self.thinker.model.audio_tower(mel, feature_lens=torch.tensor([length])).last_hidden_state
            name = f"drawn/audio/{length}"
            arrays[name] = sampled(name, rows.numpy(), DRAWN)
        return arrays

    def _noise(self) -> tuple[float, float]:
        """Differences between the fp32 and fp64 models: the largest of logits, 99 % of routers' are below the other.

        The routers' is to judge one token, the one nearest to a tie, and the logits' any step of any answer.
        """
        chosen = [prompt for prompt in PROMPTS if prompt.name in _NOISE_PROMPTS]
        narrow = [self._logits(prompt) for prompt in chosen]
        self.thinker.double()
        wide = [self._logits(prompt) for prompt in chosen]
        self.thinker.float()
        pairs = list(zip(narrow, wide, strict=True))
        logits = np.concatenate([_differences(a[:1], b[:1]) for a, b in pairs])
        routers = np.concatenate([_differences(a[1:], b[1:]) for a, b in pairs])
        return float(logits.max()), float(np.quantile(routers, 0.99))

    def _logits(self, prompt: Prompt) -> list[torch.Tensor]:
        """The logits at the end of a prompt, then every router's."""
        self._router_logits = []
        self.thinker.model.rope_deltas = None
        logits = self.thinker(**self.inputs(prompt), use_cache=False).logits[0, -1]
        return [logits, *self._router_logits]


_NOISE_PROMPTS = frozenset({"hello", "long_story", "images_two", "audio_long_opus", "video_clip_mp4", "all_kinds"})


def _differences(narrow: list[torch.Tensor], wide: list[torch.Tensor]) -> Array:
    return np.concatenate([(a.double() - b).abs().numpy().ravel() for a, b in zip(narrow, wide, strict=True)])


def _sounds_in_order(
    names: list[tuple[str, str]], films: list[Film], use_tracks: bool
) -> tuple[list[Array], list[int | None]]:
    """Sounds in prompt order, and for each the film it belongs to."""
    sounds: list[Array] = []
    owners: list[int | None] = []
    film = 0
    for kind, name in names:
        if kind == "audio":
            sounds.append(load_sound(MEDIA / name))
            owners.append(None)
        if kind == "video":
            track = films[film].sound
            if use_tracks and track is not None:
                sounds.append(track)
                owners.append(film)
            film += 1
    return sounds, owners
