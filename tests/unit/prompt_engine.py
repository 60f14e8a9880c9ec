"""An engine folder with all that preprocess reads: tokenizer, chat template, configuration. It has no graphs."""

from __future__ import annotations

import json
from pathlib import Path

import build_engines.random_checkpoint
from build_engines.random_checkpoint.config_files import config_json, generation_config_json, processor_config_json
from build_engines.random_checkpoint.shapes import SHAPES
from build_engines.random_checkpoint.tokenizer_files import Vocabulary, tokenizer_config_json, tokenizer_json
from python_backends.config import OmniConfig
from python_backends.engine_folder import EngineFolder, FileRecord, Limits, Manifest, Source, Variant

TEMPLATE = Path(build_engines.random_checkpoint.__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
SHAPE = SHAPES["small"]
VOCABULARY = Vocabulary.learn(SHAPE.merges)
CONFIG = OmniConfig.from_json(config_json(SHAPE, VOCABULARY), generation_config_json(SHAPE, VOCABULARY))
TOKENS = CONFIG.tokens


def prompt_engine(folder: Path, max_model_len: int = 4096, template: str = TEMPLATE) -> EngineFolder:
    """Write the files and open the folder."""
    files = {
        "tokenizer.json": tokenizer_json(VOCABULARY),
        "tokenizer_config.json": tokenizer_config_json(VOCABULARY),
        "processor_config.json": json.dumps(processor_config_json(SHAPE)),
        "chat_template.jinja": template,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    manifest = Manifest(
        name="small",
        variant=Variant.INSTRUCT,
        source=Source("Qwen3OmniMoeForConditionalGeneration", "", "", ""),
        precision={},
        limits=Limits(max_model_len),
        files={name: FileRecord(len(text.encode()), "") for name, text in files.items()},
        tools={},
    )
    return EngineFolder(folder, manifest, CONFIG)
