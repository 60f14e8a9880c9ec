"""The repository as Triton reads it: every config parses, and the ensemble fits the models it joins."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

REPOSITORY = Path(__file__).parents[2] / "model_repository"
CONFIGS = sorted(REPOSITORY.glob("*/config.pbtxt"))


def read(path: Path) -> model_config_pb2.ModelConfig:
    return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())


MODELS = {path.parent.name: read(path) for path in CONFIGS}
OMNI = MODELS["omni"]


@pytest.mark.parametrize("name", MODELS)
def test_a_config_is_named_as_its_folder_and_has_a_version(name: str) -> None:
    assert MODELS[name].name == name
    assert (REPOSITORY / name / "1").is_dir()


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.backend == "python"])
def test_a_python_model_hands_over_to_python_backends(name: str) -> None:
    source = (REPOSITORY / name / "1" / "model.py").read_text(encoding="utf-8")
    assert "import" in source and "as TritonPythonModel" in source
    assert len(source.splitlines()) < 10


@pytest.mark.parametrize("step", OMNI.ensemble_scheduling.step, ids=lambda step: step.model_name)
def test_an_ensemble_step_maps_inputs_and_outputs_that_its_model_has(
    step: model_config_pb2.ModelEnsembling.Step,
) -> None:
    model = MODELS[step.model_name]
    inputs, outputs = {i.name: i for i in model.input}, {o.name for o in model.output}
    assert set(step.input_map) <= set(inputs)
    assert set(step.output_map) <= outputs
    required = {name for name, value in inputs.items() if not value.optional}
    assert required <= set(step.input_map)


def test_the_ensemble_passes_every_public_input_to_preprocess_with_the_same_type() -> None:
    public = {i.name: (i.data_type, tuple(i.dims), i.optional) for i in OMNI.input}
    preprocess = {i.name: (i.data_type, tuple(i.dims), i.optional) for i in MODELS["preprocess"].input}
    assert public == preprocess
    assert all(optional for _, _, optional in public.values())


def test_the_ensemble_is_decoupled_and_gives_the_outputs_of_the_contract() -> None:
    assert OMNI.model_transaction_policy.decoupled
    assert {o.name for o in OMNI.output} == {"text_output", "finish_reason", "usage", "output_logprobs"}


def test_only_the_first_step_refuses_by_queue_length() -> None:
    bounded = {name for name, model in MODELS.items() if model.dynamic_batching.default_queue_policy.max_queue_size > 0}
    assert bounded == {"preprocess"}


def test_encoders_take_ragged_batches_across_requests() -> None:
    for name in ("vision_encoder", "audio_encoder"):
        model = MODELS[name]
        assert model.max_batch_size > 1 and model.HasField("dynamic_batching")
        assert all(i.allow_ragged_batch for i in model.input)


def test_postprocess_has_no_dynamic_batcher_because_that_would_swallow_cancelled_chunks() -> None:
    assert not MODELS["postprocess"].HasField("dynamic_batching")
    assert MODELS["postprocess"].instance_group[0].count == 1
