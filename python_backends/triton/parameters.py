"""The `parameters` of a model's config.pbtxt, as Triton hands them to `initialize`."""

from __future__ import annotations

import json
from collections.abc import Mapping


def model_parameters(args: Mapping[str, str]) -> dict[str, str]:
    """Name → value of every parameter in the model's configuration."""
    config = json.loads(args["model_config"])
    return {name: value["string_value"] for name, value in config.get("parameters", {}).items()}


def take_int(parameters: dict[str, str], name: str, default: int) -> int:
    """Remove one whole-number parameter from the dictionary.

    Raises:
        ValueError: the value is not a positive whole number.
    """
    text = parameters.pop(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"parameters.{name}: found {text!r}; allowed: a whole number from 1 up")
    return int(text)


def refuse_unknown(parameters: Mapping[str, str]) -> None:
    """Raises:
    ValueError: a parameter is left that nobody took.
    """
    if parameters:
        raise ValueError(f"parameters: unknown {', '.join(sorted(parameters))}")
