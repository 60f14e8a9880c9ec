"""Triton's gRPC endpoint: one bidirectional stream a request, all over one channel.

The generated stubs of `tritonclient` are used directly: its `InferenceServerClient` allows one stream at a time.
"""

from __future__ import annotations

from typing import Any

import grpc
from tritonclient.grpc import service_pb2_grpc

from omni_client.endpoint import Endpoint, Timeouts
from omni_client.errors import RequestTimeout
from omni_client.grpc_message import error_from_rpc, message_of, outputs_of
from omni_client.request import GenerateRequest
from omni_client.transport import Alarm, AsyncExchange, AsyncTransport, Exchange, Transport


def _channel(maker: Any, endpoint: Endpoint, connect: float) -> Any:
    """A channel made by `grpc` or `grpc.aio`."""
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        # gRPC's name for how long one attempt to connect may take
        ("grpc.min_reconnect_backoff_ms", round(1000 * connect)),
        # a server that comes back is found within a second, not two minutes
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # closing this channel closes its connection, whoever else talks to the same server
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if endpoint.is_secure:
        return maker.secure_channel(endpoint.address, grpc.ssl_channel_credentials(), options=options)
    return maker.insecure_channel(endpoint.address, options=options)


class GrpcExchange(Exchange):
    def __init__(self, call: Any, first_token: float | None, total: float | None) -> None:
        self._call = call
        self._first_token = first_token
        self._total = total
        self._alarm = Alarm(first_token, call.cancel)

    def receive(self) -> dict[str, str] | None:
        try:
            return outputs_of(next(self._call))
        except StopIteration:
            return None
        except grpc.RpcError as error:
            if self._alarm.rang:
                raise RequestTimeout(f"no token within {self._first_token:g} s") from None
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._total is not None:
                raise RequestTimeout(f"no end of the answer within {self._total:g} s") from None
            raise error_from_rpc(error) from None
        finally:
            self._alarm.switch_off()

    def abort(self) -> None:
        self._alarm.switch_off()
        self._call.cancel()


class GrpcTransport(Transport):
    def __init__(self, endpoint: Endpoint, model: str, connect: float) -> None:
        self._model = model
        self._channel = _channel(grpc, endpoint, connect)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def send(self, request: GenerateRequest, streaming: bool, timeouts: Timeouts) -> Exchange:
        message = message_of(request, self._model, streaming)
        call = self._stub.ModelStreamInfer(iter((message,)), timeout=timeouts.total)
        return GrpcExchange(call, timeouts.first_token if streaming else None, timeouts.total)

    def close(self) -> None:
        self._channel.close()


class AsyncGrpcExchange(AsyncExchange):
    def __init__(self, call: Any) -> None:
        self._call = call

    async def receive(self) -> dict[str, str] | None:
        try:
            response = await self._call.read()
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return None if response is grpc.aio.EOF else outputs_of(response)

    async def abort(self) -> None:
        self._call.cancel()


class AsyncGrpcTransport(AsyncTransport):
    """Belongs to the event loop in which it is made."""

    def __init__(self, endpoint: Endpoint, model: str, connect: float) -> None:
        self._model = model
        self._channel = _channel(grpc.aio, endpoint, connect)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def send(self, request: GenerateRequest, streaming: bool) -> AsyncExchange:
        message = message_of(request, self._model, streaming)
        return AsyncGrpcExchange(self._stub.ModelStreamInfer(iter((message,))))

    async def close(self) -> None:
        await self._channel.close()
