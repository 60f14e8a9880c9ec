"""The soak tests use the server of the server tests."""

from tests.server.conftest import grpc_url, http_url, metrics, server

__all__ = ["grpc_url", "http_url", "metrics", "server"]
