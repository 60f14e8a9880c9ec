"""A small server that speaks Triton's two protocols and answers by a script: the client meets real connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor

LAST = {
    "text_output": "",
    "finish_reason": "stop",
    "usage": '{"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, '
    '"prompt_tokens_details": {"text_tokens": 3, "cached_tokens": 1}, "audio_seconds": 0.0, '
    '"times_ms": {"queue": 1.5}}',
    "output_logprobs": '{"content": [{"token": "lo"}]}',
}
FIRST = {"text_output": "Hel", "output_logprobs": '{"content": [{"token": "Hel"}]}'}
SCRIPTS: dict[str, list[dict[str, str] | str]] = {
    "hello": [FIRST, {"text_output": "lo\u2028"}, LAST],
    "empty": [LAST],
    "refuse": ["in ensemble 'omni', [INVALID_ARG] image[0]: no image; allowed: JPEG or PNG"],
    "full": ["in ensemble 'omni', [UNAVAILABLE] the queue is full"],
    "fail": [FIRST, "in ensemble 'omni', [INTERNAL] it broke"],
    "cut": [FIRST],
    "wait": [FIRST, "WAIT"],
    "silent": ["WAIT"],
}


class ScriptedServer:
    """`requests` holds the inputs of each request by name; `gone` is set when a client leaves one that waits."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.gone = threading.Event()
        self._grpc = grpc.server(ThreadPoolExecutor(16))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Servicer(self), self._grpc)
        self.grpc_url = f"grpc://127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self.http_url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def url(self, scheme: str) -> str:
        return self.grpc_url if scheme == "grpc" else self.http_url

    def close(self) -> None:
        self._grpc.stop(grace=None).wait()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self, owner: ScriptedServer) -> None:
        self._owner = owner

    def ModelStreamInfer(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:
        over = threading.Event()
        context.add_callback(over.set)
        for request in request_iterator:
            inputs = {
                item.name: list(deserialize_bytes_tensor(raw)) if item.datatype == "BYTES" else raw
                for item, raw in zip(request.inputs, request.raw_input_contents, strict=True)
            }
            self._owner.requests.append(inputs)
            steps = SCRIPTS[inputs["text_input"][0].decode()]
            if "WAIT" in steps and not context.add_callback(self._owner.gone.set):
                self._owner.gone.set()  # the client has left already
            for step in steps:
                if step == "WAIT":
                    over.wait(timeout=20)
                    return
                yield _grpc_response(step)


def _grpc_response(step: dict[str, str] | str) -> Any:
    if isinstance(step, str):
        return service_pb2.ModelStreamInferResponse(error_message=step)
    response = service_pb2.ModelInferResponse()
    for name, text in step.items():
        response.outputs.add(name=name, datatype="BYTES", shape=[1, 1])
        data = text.encode()
        response.raw_output_contents.append(len(data).to_bytes(4, "little") + data)
    return service_pb2.ModelStreamInferResponse(infer_response=response)


class _Handler(BaseHTTPRequestHandler):
    owner: ScriptedServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        try:
            self._answer()
        except ConnectionError:  # clients leave when they like
            self.owner.gone.set()

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.requests.append(body)
        if self.path != "/v2/models/omni/generate_stream":
            self._send_json(404, {"error": "Request for unknown model: 'other' is not found"})
            return
        steps = SCRIPTS[body["text_input"]]
        if steps[0] == "WAIT":
            self._wait()
            return
        self.send_response(400 if isinstance(steps[0], str) else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for step in steps:
            if step == "WAIT":
                self._wait()
                return
            event = {"error": step} if isinstance(step, str) else {**step, "model_name": "omni"}
            data = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the test output clean."""

    def _send_json(self, status: int, value: dict[str, str]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _wait(self) -> None:
        """Until the client closes the connection."""
        self.close_connection = True
        self.connection.settimeout(20)
        try:
            self.rfile.read(1)
        finally:
            self.owner.gone.set()
