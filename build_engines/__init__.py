"""Turns a Hugging Face checkpoint of the Qwen3-Omni architecture into an engine folder, without torch.

    python -m build_engines CHECKPOINT [--out DIR] [--name NAME]

writes `DIR/<name>/<version>` (graphs, weights, tokenizer, settings, `manifest.json`) and moves the link `DIR/current`
to it.
"""
