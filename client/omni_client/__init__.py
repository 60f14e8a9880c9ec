"""Client for the omni models: text, images, sounds and videos in, text out. gRPC or HTTP, threads or asyncio."""

from omni_client.answer import Answer, Piece, Usage
from omni_client.async_client import AsyncAnswerStream, AsyncOmniClient
from omni_client.client import AnswerStream, OmniClient
from omni_client.endpoint import Timeouts
from omni_client.errors import (
    InvalidRequestError,
    OmniClientError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    ServerOverloaded,
    ServerUnavailable,
)
from omni_client.request import GenerateRequest, Media, Sampling

__all__ = [
    "Answer",
    "AnswerStream",
    "AsyncAnswerStream",
    "AsyncOmniClient",
    "GenerateRequest",
    "InvalidRequestError",
    "Media",
    "OmniClient",
    "OmniClientError",
    "Piece",
    "RequestCancelled",
    "RequestTimeout",
    "Sampling",
    "ServerError",
    "ServerOverloaded",
    "ServerUnavailable",
    "Timeouts",
    "Usage",
]
