"""From the public contract to what the encoders and the thinker take: `OmniRequest` → `PreparedRequest`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from python_backends.config import OmniConfig
from python_backends.engine_folder import EngineFolder
from python_backends.errors import InvalidRequest
from python_backends.messages import FloatArray, OmniRequest, PreparedRequest, ResponseSpec
from python_backends.preprocess.chat import Chat, MediaKind, MediaTensors, chat_of_messages, chat_of_text
from python_backends.preprocess.cost import TokenCounts, request_cost, traffic_class
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.media import MediaReader, Medium, Sound, Vision
from python_backends.preprocess.positions import VisionGrid, sound_tokens
from python_backends.preprocess.processor_config import ProcessorConfig, ProcessorConfigError
from python_backends.preprocess.prompt import Prompt, PromptBuilder
from python_backends.preprocess.sampling import answer_tokens, read_sampling, read_stop
from python_backends.preprocess.strict_json import decode_utf8
from python_backends.preprocess.template import ChatTemplate
from python_backends.preprocess.tokenizer import PromptTokenizer, template_variables
from python_backends.preprocess.tool_schema import read_tools


class Preprocessor:
    """Checks requests and prepares them. Thread-safe.

    Token ids and positions equal those of transformers' processor and `get_rope_index`.
    """

    def __init__(self, engine: EngineFolder, limits: Limits) -> None:
        """Load tokenizer, chat template and processor settings from the engine folder.

        Raises:
            EngineFolderError, TokenizerError, ChatTemplateError, ProcessorConfigError: a file is missing or unusable.
        """
        self._config = engine.config
        self._limits = limits
        self._max_model_len = engine.manifest.limits.max_model_len
        self._processor = ProcessorConfig.open(engine.file("processor_config.json"))
        self._stride = _check_processor(self._processor, engine.config)
        self._tokenizer = PromptTokenizer(engine.file("tokenizer.json"))
        names = "tokenizer_config.json"
        variables = template_variables(engine.file(names)) if names in engine.manifest.files else {}
        source = engine.file("chat_template.jinja").read_text(encoding="utf-8")
        self._template = ChatTemplate(source, variables, limits)
        self._media = MediaReader(self._processor, limits)
        tokens = self._config.tokens
        self._placeholders = {
            tokens.image: MediaKind.IMAGE,
            tokens.audio: MediaKind.AUDIO,
            tokens.video: MediaKind.VIDEO,
        }

    def prepare(self, request: OmniRequest, is_cancelled: Callable[[], bool] = lambda: False) -> PreparedRequest:
        """Everything that the next models need of a request.

        Args:
            request: as it came in.
            is_cancelled: asked while media are read; true ends the work.

        Raises:
            InvalidRequest: the request cannot be served.
            RequestCancelled: `is_cancelled` said so.
        """
        started = time.perf_counter()
        self._check_size(request)
        chat, field = self._read_chat(request)
        tools = read_tools(request.tools, self._limits)
        stop = read_stop(request.stop, self._limits)
        marks = self._tokenizer.control_tokens
        text = self._template.render(marks.mark(chat.turns, field), marks.mark(tools, "tools"), field)
        ids = self._tokenizer.encode(text)
        self._check_placeholders(ids, chat, field)
        # Every placeholder becomes one token or more, so what does not fit now never will: no media are decoded for it.
        sampling = read_sampling(request, len(ids), self._max_model_len, self._limits)
        written = time.perf_counter()
        room = self._max_model_len - len(ids)
        media = self._media.read(chat.media, bool(request.use_audio_in_video), room, is_cancelled)
        prompt, vision, sounds = self._assemble(ids, media)
        counts = TokenCounts.of(prompt.input_ids, self._config.tokens)
        limit = answer_tokens(request.max_tokens, counts.total, self._max_model_len, self._limits)
        finished = time.perf_counter()
        times = {"prompt": (written - started) * 1e3, **_media_times(media), "preprocess": (finished - started) * 1e3}
        return PreparedRequest(
            key=uuid.uuid4().hex,
            input_ids=prompt.input_ids,
            position_ids=prompt.position_ids,
            rope_delta=prompt.rope_delta,
            pixel_values=_stack([item.pixel_values for item in vision], self._config.vision.patch_dim),
            grid_thw=np.array([item.grid for item in vision], dtype=np.int32).reshape(-1, 3),
            vision_keys=tuple(item.key for item in vision),
            audio_features=_stack([item.features for item in sounds], self._config.audio.num_mel_bins),
            audio_lengths=np.array([len(item.features) for item in sounds], dtype=np.int32),
            audio_keys=tuple(item.key for item in sounds),
            sampling=replace(sampling, max_tokens=limit),
            cost=request_cost(counts, self._frames(media), limit),
            traffic_class=traffic_class(medium.kind for medium in media),
            response=ResponseSpec(
                streaming=bool(request.streaming),
                stop=stop,
                tools=bool(tools),
                logprobs=request.logprobs,
                text_tokens=counts.text,
                image_tokens=counts.image,
                audio_tokens=counts.audio,
                video_tokens=counts.video,
                times_ms={name: round(value, 3) for name, value in times.items()},
            ),
        )

    def close(self) -> None:
        """End the threads that read media."""
        self._media.close()

    def _check_size(self, request: OmniRequest) -> None:
        alone = (request.text_input, request.messages, request.tools)
        size = sum(len(data) for data in (*alone, *request.image, *request.audio, *request.video) if data is not None)
        if size > self._limits.max_request_bytes:
            raise InvalidRequest("request", f"{size} bytes", f"at most {self._limits.max_request_bytes} bytes")

    def _read_chat(self, request: OmniRequest) -> tuple[Chat, str]:
        """The conversation, and the name of the input that it came from."""
        tensors: MediaTensors = {
            MediaKind.IMAGE: request.image,
            MediaKind.AUDIO: request.audio,
            MediaKind.VIDEO: request.video,
        }
        if request.text_input is not None and request.messages is None:
            text = decode_utf8(request.text_input, "text_input")
            return chat_of_text(text, tensors, self._limits), "text_input"
        if request.messages is not None and request.text_input is None:
            return chat_of_messages(request.messages, tensors, self._limits), "messages"
        found = "neither" if request.messages is None else "both"
        raise InvalidRequest("text_input, messages", found, "exactly one of the two")

    def _check_placeholders(self, ids: Sequence[int], chat: Chat, field: str) -> None:
        for token, kind in self._placeholders.items():
            given = sum(1 for part in chat.media if part.kind is kind)
            shown = ids.count(token)
            if shown != given:
                found = f"{given} of kind {kind.value}, of which the chat template shows {shown}"
                raise InvalidRequest(field, found, "media where the model's chat template shows each of them once")

    def _assemble(self, ids: Sequence[int], media: Sequence[Medium]) -> tuple[Prompt, list[Vision], list[Sound]]:
        """Opens up the placeholders. Media of a kind take its placeholders in order, as in transformers."""
        queues: dict[MediaKind, Iterator[Medium]] = {
            kind: iter([medium for medium in media if medium.kind is kind]) for kind in MediaKind
        }
        builder = PromptBuilder(self._config.tokens)
        vision: list[Vision] = []
        sounds: list[Sound] = []
        begin = 0
        for at in (i for i, token in enumerate(ids) if token in self._placeholders):
            medium = next(queues[self._placeholders[ids[at]]])
            builder.add_text(ids[begin:at])
            begin = at + 1
            self._add(builder, medium)
            if medium.vision:
                vision.append(medium.vision)
            if medium.sound:
                sounds.append(medium.sound)
        builder.add_text(ids[begin:])
        return builder.build(), vision, sounds

    def _add(self, builder: PromptBuilder, medium: Medium) -> None:
        sound = sound_tokens(len(medium.sound.features)) if medium.sound else 0
        if medium.vision is None:
            builder.add_sound(sound)
        elif medium.kind is MediaKind.IMAGE:
            builder.add_image(self._grid(medium.vision))
        elif medium.sound is None:
            builder.add_video(self._grid(medium.vision))
        else:
            builder.add_video_with_sound(self._grid(medium.vision), sound)

    def _grid(self, vision: Vision) -> VisionGrid:
        merge = self._config.vision.spatial_merge_size
        steps, rows, columns = vision.grid
        return VisionGrid(steps, rows // merge, columns // merge, self._stride)

    def _frames(self, media: Sequence[Medium]) -> int:
        """Video frames that the vision encoder sees."""
        steps = sum(medium.vision.grid[0] for medium in media if medium.vision and medium.kind is MediaKind.VIDEO)
        return steps * self._config.vision.temporal_patch_size


def _check_processor(processor: ProcessorConfig, config: OmniConfig) -> int:
    """Time positions between two temporal patches of a video.

    Raises:
        ProcessorConfigError: the processor makes what the encoders do not take, or the distance is no whole number.
    """
    for vision in (processor.image, processor.video):
        found = (vision.patch_size, vision.temporal_patch_size, vision.merge_size)
        expected = (config.vision.patch_size, config.vision.temporal_patch_size, config.vision.spatial_merge_size)
        if found != expected:
            raise ProcessorConfigError(
                f"patch, temporal patch and merge size: found {found}; the encoder has {expected}"
            )
    if processor.mel.mel_bins != config.audio.num_mel_bins:
        raise ProcessorConfigError(
            f"feature_size: found {processor.mel.mel_bins}; the encoder has {config.audio.num_mel_bins}"
        )
    stride = processor.video.seconds_per_grid * config.position_id_per_seconds
    if not stride.is_integer():
        raise ProcessorConfigError(f"temporal_patch_size: found {stride} positions a patch; allowed: a whole number")
    return int(stride)


def _media_times(media: Sequence[Medium]) -> dict[str, float]:
    times: dict[str, float] = {}
    for medium in {id(medium): medium for medium in media}.values():
        for step, value in zip(("decode", "features"), medium.times_ms, strict=True):
            name = f"{medium.kind.value}_{step}"
            times[name] = times.get(name, 0.0) + value
    return times


def _stack(arrays: Sequence[FloatArray], width: int) -> FloatArray:
    if len(arrays) == 1:
        return np.ascontiguousarray(arrays[0])
    return np.concatenate(arrays) if arrays else np.empty((0, width), dtype=np.float32)
