"""The command `omni-client`: options, output and exit status."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from omni_client import GenerateRequest, Sampling
from omni_client.cli import main, parser, request_of

from tests.unit.scripted_server import ScriptedServer


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    running = ScriptedServer()
    yield running
    running.close()


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    try:
        status = main(arguments)
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    output = capsys.readouterr()
    return status, output.out, output.err


def test_every_option_reaches_the_request(tmp_path: Path) -> None:
    for name, data in (("a.jpg", b"i"), ("b.wav", b"s"), ("c.mp4", b"v"), ("tools.json", b'[{"type": "function"}]')):
        (tmp_path / name).write_bytes(data)
    arguments = [
        *("What?", "--image", f"{tmp_path}/a.jpg", "--image", f"{tmp_path}/b.wav", "--audio", f"{tmp_path}/b.wav"),
        *("--video", f"{tmp_path}/c.mp4", "--use-audio-in-video", "--max-tokens", "5", "--temperature", "0.5"),
        *("--top-k", "3", "--top-p", "0.9", "--repetition-penalty", "1.1", "--seed", "7", "--stop", "a", "--stop", "b"),
        *("--ignore-eos", "--logprobs", "2", "--tools", f"{tmp_path}/tools.json", "--request-id", "me"),
        *("--priority", "1", "--no-stream"),
    ]
    request = request_of(parser().parse_args(arguments))
    assert request == GenerateRequest(
        text="What?",
        image=(tmp_path / "a.jpg", tmp_path / "b.wav"),
        audio=(tmp_path / "b.wav",),
        video=(tmp_path / "c.mp4",),
        sampling=Sampling(5, 0.5, 3, 0.9, 1.1, 7, ["a", "b"], True, 2),
        tools=[{"type": "function"}],
        use_audio_in_video=True,
        streaming=False,
        request_id="me",
        priority=1,
    )


def test_without_options_the_server_chooses() -> None:
    request = request_of(parser().parse_args(["Hi"]))
    assert request == GenerateRequest(text="Hi", sampling=Sampling(stop=[]), streaming=True)


def test_a_dash_reads_the_question_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is\nthis?"))
    assert request_of(parser().parse_args(["-"])).text == "What is\nthis?"


def test_messages_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "ü"}]', encoding="utf-8")
    request = request_of(parser().parse_args(["--messages", str(tmp_path / "chat.json")]))
    assert request.messages == [{"role": "user", "content": "ü"}]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "TEXT, --messages: found neither; allowed: one"),
        (["Hi", "--messages", "chat.json"], "TEXT, --messages: found both; allowed: one"),
        (["Hi", "--image", "nope.jpg"], "image[0]: cannot read nope.jpg: No such file or directory"),
        (["Hi", "--tools", "nope.json"], "--tools: cannot read nope.json: No such file or directory"),
        (["Hi", "--priority", "0"], "priority: found 0; allowed: 1 (first) or more"),
        (["Hi", "--url", "ftp://x"], "url: found 'ftp://x'; allowed: grpc://host:port or http://host:port"),
        (["Hi", "--total-timeout", "0"], "total: found 0.0; allowed: more than 0 seconds"),
        (["Hi", "--max-tokens", "many"], "argument --max-tokens: invalid int value: 'many'"),
        (["Hi", "--frob"], "unrecognized arguments: --frob"),
    ],
)
def test_wrong_usage_gives_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments, capsys) == (2, "", f"omni-client: {sentence} (--help lists the options)\n")


@pytest.mark.parametrize(("content", "found"), [("{", "is not JSON"), ("{}", "holds no list; allowed: a JSON list")])
def test_a_file_that_is_no_json_list_is_named(
    content: str, found: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "chat.json").write_text(content)
    status, _, error = run(["--messages", str(tmp_path / "chat.json")], capsys)
    assert status == 2
    assert f"--messages: {tmp_path / 'chat.json'} {found}" in error


@pytest.mark.parametrize("scheme", ["grpc", "http"])
@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_the_answer_is_printed(
    server: ScriptedServer, scheme: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hello", "--url", server.url(scheme), *more], capsys) == (0, "Hello\u2028\n", "")


def test_json_is_one_line_a_piece(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(["hello", "--url", server.grpc_url, "--json"], capsys)
    lines = [json.loads(line) for line in out.removesuffix("\n").split("\n")]
    assert status == 0
    assert lines[0] == {"text": "Hel", "logprobs": {"content": [{"token": "Hel"}]}}
    assert lines[1] == {"text": "lo\u2028"}
    assert (lines[2]["finish_reason"], lines[2]["usage"]["completion_tokens"]) == ("stop", 2)


def test_stats_go_to_standard_error(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, error = run(["hello", "--url", server.http_url, "--stats"], capsys)
    assert (status, out) == (0, "Hello\u2028\n")
    for part in ("time to first piece", "tokens/s", "3 tokens (3 text, 1 cached)", "2 tokens, ended by stop", "queue"):
        assert part in error


def test_an_error_of_the_server_is_one_sentence(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["refuse", "--url", server.grpc_url], capsys) == (
        1,
        "",
        "omni-client: image[0]: no image; allowed: JPEG or PNG\n",
    )


def test_what_came_before_an_error_stays_on_the_screen(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fail", "--url", server.http_url], capsys) == (1, "Hel\n", "omni-client: it broke\n")


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "omni_client", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_control_c_cancels_at_the_server(server: ScriptedServer, scheme: str) -> None:
    server.gone.clear()
    with start(["wait", "--url", server.url(scheme)]) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"Hel"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    assert (process.returncode, error) == (130, b"")
    assert server.gone.wait(10)


def test_a_reader_that_leaves_ends_the_command_quietly(server: ScriptedServer) -> None:
    with start(["hello", "--url", server.grpc_url]) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1
