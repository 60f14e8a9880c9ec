"""config.json, generation_config.json and the processor's settings of a random checkpoint."""

from __future__ import annotations

from typing import Any

from build_engines.random_checkpoint.shapes import Shape
from build_engines.random_checkpoint.tensors import (
    MEL_BINS,
    PREDICTOR_HEADS,
    PREDICTOR_KV_HEADS,
    TALKER_HEAD,
    UPSAMPLE_RATES,
    UPSAMPLING_RATIOS,
    talker_heads,
    talker_kv_heads,
)
from build_engines.random_checkpoint.tokenizer_files import Vocabulary

Json = dict[str, Any]

TRANSFORMERS_VERSION = "5.24.0"
RELEASED_TRANSFORMERS_VERSION = "4.57.0.dev0"


def config_json(shape: Shape, vocabulary: Vocabulary) -> Json:
    """`config.json`, the keys that the model classes read."""
    ids = vocabulary.added
    media_ids = {
        "audio_token_id": ids["<|audio_pad|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "audio_start_token_id": ids["<|audio_start|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "position_id_per_seconds": 13,
        "seconds_per_chunk": 2,
    }
    return {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "model_type": "qwen3_omni_moe",
        "dtype": "bfloat16",
        "transformers_version": RELEASED_TRANSFORMERS_VERSION if shape.released_layout else TRANSFORMERS_VERSION,
        "enable_audio_output": True,
        "im_start_token_id": ids["<|im_start|>"],
        "im_end_token_id": ids["<|im_end|>"],
        "system_token_id": vocabulary.ids["system"],
        "user_token_id": vocabulary.ids["user"],
        "assistant_token_id": vocabulary.ids["assistant"],
        "tts_pad_token_id": ids["<tts_pad>"],
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
        "thinker_config": {
            "model_type": "qwen3_omni_moe_thinker",
            "text_config": _text(shape),
            "vision_config": _vision(shape),
            "audio_config": _audio(shape),
            "user_token_id": vocabulary.ids["user"],
            "vision_end_token_id": ids["<|vision_end|>"],
            "audio_end_token_id": ids["<|audio_end|>"],
            **media_ids,
        },
        "talker_config": _talker(shape) | media_ids,
        "code2wav_config": _vocoder(shape),
    }


def generation_config_json(shape: Shape, vocabulary: Vocabulary) -> Json:
    """`generation_config.json`: greedy, one end token as a list or a number, as the two layouts have it."""
    end = vocabulary.added["<|im_end|>"]
    pad = vocabulary.added["<|endoftext|>"]
    if shape.released_layout:
        return {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad}
    return {"do_sample": False, "eos_token_id": end, "pad_token_id": pad}


def processor_config_json(shape: Shape) -> Json:
    """`processor_config.json`, as transformers 5.24 saves all settings of the processor."""
    vision = _pixels() | {"size": _size(shape)}
    return {
        "processor_class": "Qwen3OmniMoeProcessor",
        "feature_extractor": {"feature_extractor_type": "WhisperFeatureExtractor", **_features()},
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **vision},
        "video_processor": {
            "video_processor_type": "Qwen2VLVideoProcessor",
            **vision,
            "cap_pixels_per_frame": False,
            "do_sample_frames": False,
            "max_frames": 768,
            "min_frames": 4,
            "return_metadata": False,
        },
    }


def preprocessor_config_json(shape: Shape) -> Json:
    """`preprocessor_config.json`, the released checkpoints' one flat file for pictures, videos and sounds."""
    least, most = shape.image_pixels
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen3OmniMoeProcessor",
        "min_pixels": least,
        "max_pixels": most,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "merge_size": 2,
        "patch_size": 16,
        "temporal_patch_size": 2,
        **_features(),
    }


def _size(shape: Shape) -> Json:
    least, most = shape.image_pixels
    return {"shortest_edge": least, "longest_edge": most}


def _pixels() -> Json:
    return {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "merge_size": 2,
        "patch_size": 16,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "temporal_patch_size": 2,
    }


def _features() -> Json:
    return {
        "chunk_length": 300,
        "dither": 0.0,
        "feature_size": MEL_BINS,
        "hop_length": 160,
        "n_fft": 400,
        "n_samples": 4800000,
        "nb_max_frames": 30000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
        "sampling_rate": 16000,
    }


def _rope(shape: Shape, section: list[int]) -> Json:
    rope = {"rope_type": "default", "mrope_section": section, "mrope_interleaved": True, "interleaved": True}
    if shape.released_layout:
        return {"rope_scaling": rope | {"type": "default"}, "rope_theta": 1000000}
    return {"rope_parameters": rope | {"rope_theta": 1000000.0}}


def _text(shape: Shape) -> Json:
    t = shape.thinker
    return {
        "model_type": "qwen3_omni_moe_text",
        "vocab_size": shape.vocab,
        "hidden_size": t.hidden,
        "intermediate_size": 2 * t.hidden,
        "num_hidden_layers": t.layers,
        "num_attention_heads": t.heads,
        "num_key_value_heads": t.kv_heads,
        "head_dim": t.head_dim,
        "hidden_act": "silu",
        "moe_intermediate_size": t.expert_hidden,
        "num_experts": t.experts,
        "num_experts_per_tok": t.experts_per_token,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "shared_expert_intermediate_size": 0,
        "max_position_embeddings": t.max_positions,
        "rms_norm_eps": 1e-06,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "use_cache": True,
        **_rope(shape, list(t.mrope_section)),
    }


def _vision(shape: Shape) -> Json:
    v = shape.vision
    return {
        "model_type": "qwen3_omni_moe_vision_encoder",
        "depth": v.depth,
        "hidden_size": v.hidden,
        "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": v.mlp_hidden,
        "num_heads": v.heads,
        "in_channels": 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "num_position_embeddings": v.positions**2,
        "deepstack_visual_indexes": list(v.taps),
        "out_hidden_size": shape.thinker.hidden,
        "image_size": 16 * v.positions,
        "apply_vit_abs_pos_embed": True,
    }


def _audio(shape: Shape) -> Json:
    a = shape.audio
    return {
        "model_type": "qwen3_omni_moe_audio_encoder",
        "num_mel_bins": MEL_BINS,
        "d_model": a.hidden,
        "encoder_layers": a.layers,
        "encoder_attention_heads": a.heads,
        "encoder_ffn_dim": a.mlp_hidden,
        "downsample_hidden_size": a.conv_channels,
        "max_source_positions": 1500,
        "n_window": 50,
        "n_window_infer": a.window,
        "conv_chunksize": 500,
        "output_dim": shape.thinker.hidden,
        "activation_function": "gelu",
        "scale_embedding": False,
    }


def _talker(shape: Shape) -> Json:
    s = shape.speech
    book = s.codebook
    return {
        "model_type": "qwen3_omni_moe_talker",
        "text_config": {
            "model_type": "qwen3_omni_moe_talker_text",
            "vocab_size": book + 1024,
            "hidden_size": s.hidden,
            "intermediate_size": 2 * s.hidden,
            "num_hidden_layers": s.layers,
            "num_attention_heads": talker_heads(s),
            "num_key_value_heads": talker_kv_heads(s),
            "head_dim": TALKER_HEAD,
            "hidden_act": "silu",
            "moe_intermediate_size": s.expert_hidden,
            "num_experts": s.experts,
            "num_experts_per_tok": s.experts_per_token,
            "shared_expert_intermediate_size": s.expert_hidden,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "max_position_embeddings": shape.thinker.max_positions,
            "rms_norm_eps": 1e-06,
            **_rope(shape, [6, 5, 5]),
        },
        "code_predictor_config": {
            "model_type": "qwen3_omni_moe_talker_code_predictor",
            "vocab_size": book,
            "hidden_size": s.hidden,
            "intermediate_size": 2 * s.hidden,
            "num_hidden_layers": s.predictor_layers,
            "num_attention_heads": PREDICTOR_HEADS,
            "num_key_value_heads": PREDICTOR_KV_HEADS,
            "head_dim": TALKER_HEAD,
            "num_code_groups": s.code_groups,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        "num_code_groups": s.code_groups,
        "thinker_hidden_size": shape.thinker.hidden,
        "accept_hidden_layer": max(1, shape.thinker.layers // 2),
        "spatial_merge_size": 2,
        "codec_pad_id": book + 100,
        "codec_bos_id": book + 101,
        "codec_eos_token_id": book + 102,
        "codec_nothink_id": book + 107,
        "codec_think_bos_id": book + 108,
        "codec_think_eos_id": book + 109,
        "speaker_id": {"ethan": book + 200, "chelsie": book + 201, "aiden": book + 202},
    }


def _vocoder(shape: Shape) -> Json:
    s = shape.speech
    return {
        "codebook_size": s.codebook,
        "num_quantizers": s.code_groups,
        "codebook_dim": 64,
        "hidden_size": s.vocoder_hidden,
        "decoder_dim": s.vocoder_hidden,
        "intermediate_size": s.vocoder_mlp_hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8000,
        "sliding_window": 72,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "upsample_rates": list(UPSAMPLE_RATES),
        "upsampling_ratios": list(UPSAMPLING_RATIOS),
    }
