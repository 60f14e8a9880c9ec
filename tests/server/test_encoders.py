"""The encoders run only for media that is there, in batches across requests, and once for the same media."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

from omni_client import GenerateRequest, OmniClient, Sampling
from PIL import Image

from tests.parity.prompts import PROMPTS
from tests.server.asking import ask
from tests.server.metrics import Metrics

SHORT = Sampling(max_tokens=1)


def picture(shade: int, side: int = 320) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side + 32 * (shade % 4), side), (shade, 255 - shade, 128)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_prompt_of_text_alone_never_reaches_an_encoder(client: OmniClient, metrics: Metrics) -> None:
    before = [metrics.inferences(model) for model in ("vision_encoder", "audio_encoder")]
    ask(client, next(prompt for prompt in PROMPTS if prompt.kind == "text"))
    assert [metrics.inferences(model) for model in ("vision_encoder", "audio_encoder")] == before


def test_pictures_of_many_requests_and_sizes_are_encoded_in_common_batches(
    client: OmniClient, metrics: Metrics
) -> None:
    runs, requests = metrics.executions("vision_encoder"), metrics.inferences("vision_encoder")
    pictures = [picture(shade) for shade in range(24)]

    def look(data: bytes) -> str | None:
        return client.generate(GenerateRequest(text="What is it?", image=[data], sampling=SHORT)).finish_reason

    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(look, pictures))
    served = metrics.inferences("vision_encoder") - requests
    assert served == 24
    assert metrics.executions("vision_encoder") - runs <= served / 1.5


def test_the_same_picture_is_encoded_once(client: OmniClient, metrics: Metrics) -> None:
    data = picture(200, side=352)
    request = GenerateRequest(text="What is it?", image=[data], sampling=SHORT)
    first = client.generate(request)
    before = metrics.encoder_lookups("vision_encoder")
    again = client.generate(request)
    after = metrics.encoder_lookups("vision_encoder")
    assert after["hit"] == before["hit"] + 1
    assert after["miss"] == before["miss"]
    assert again.text == first.text
