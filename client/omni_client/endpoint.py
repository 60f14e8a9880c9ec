"""Where the server is, and how long the client waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from omni_client.errors import OmniClientError

DEFAULT_URL = "grpc://127.0.0.1:8001"
_PORTS = {"grpc": 8001, "grpcs": 8001, "http": 8000, "https": 8000}


@dataclass(frozen=True)
class Timeouts:
    """Limits in seconds; None is no limit.

    Attributes:
        connect: until the connection stands.
        first_token: from sending the request to the first piece of a streamed answer.
        total: from sending the request to the end of the answer.
    """

    connect: float = 5.0
    first_token: float | None = None
    total: float | None = 600.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_token", "total"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}: found {value}; allowed: more than 0 seconds")


@dataclass(frozen=True)
class Endpoint:
    """A server's address: `grpc://host:port` or `http://host:port`, or the same with TLS, `grpcs` and `https`."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Read a URL; without a scheme it is gRPC, without a port Triton's default one.

        Raises:
            OmniClientError: another scheme, no host, or something behind the port.
        """
        try:
            parts = urlsplit(url if "://" in url else f"grpc://{url}")
            port = parts.port
        except ValueError as error:
            raise OmniClientError(
                f"url: found {url!r} ({error}); allowed: grpc://host:port or http://host:port"
            ) from None
        plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
        if parts.scheme not in _PORTS or not parts.hostname or not plain:
            raise OmniClientError(f"url: found {url!r}; allowed: grpc://host:port or http://host:port")
        return cls(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port)

    @property
    def is_grpc(self) -> bool:
        return self.scheme in ("grpc", "grpcs")

    @property
    def is_secure(self) -> bool:
        return self.scheme in ("grpcs", "https")

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def http_url(self) -> str:
        """`http://host:port`."""
        return f"{self.scheme}://{self.address}"
