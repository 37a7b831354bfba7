"""`relight console` from outside: called as its OpenAPI says and as it does not; as a process, over TLS, told to end."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from builders import training
from console_run import HOSTILE, Console, journaled, waiting
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from supervisor.console import tokens
from supervisor.console.asks import asks
from supervisor.console.limits import Limits
from supervisor.console.reads import reads
from supervisor.console.tokens import Role

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
MANY = Limits(reads=(1e6, 1e6), asks=(1e6, 1e6), pending=10**6)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    root = tmp_path_factory.mktemp("api")
    journaled(root, waiting())
    with Console(root, MANY) as one:
        yield one


def described(console: Console) -> dict[str, Any]:
    """The API as it describes itself; the run is named, since a guessed name would only ever be unknown."""
    told = console.get("/api/openapi.json").json()
    for path in told["paths"].values():
        for operation in path.values():
            for one in operation.get("parameters", ()):
                if one["name"] == "run":
                    one["schema"] = {"type": "string", "enum": ["demo", "nobody"]}
    return dict(told)


def operations() -> list[str]:
    routes = [(r.path, m) for part in (reads, asks) for r in part.routes for m in r.methods]
    return [f"{m} {p}" for p, m in [*routes, ("/metrics", "GET")] if not p.endswith("/events")]


@pytest.mark.parametrize("name", operations())
def test_what_is_called_is_answered_as_it_is_described(console: Console, name: str) -> None:
    schema = schemathesis.openapi.from_dict(described(console))
    method, path = name.split(" ")
    operation = schema[path][method]
    headers = {"authorization": f"Bearer {console.approver}"}
    seen: set[int] = set()

    @given(case=operation.as_strategy())
    @settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def called(case: schemathesis.Case) -> None:
        answer = case.call(base_url=f"http://127.0.0.1:{console.port}", headers=headers)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    called()
    assert seen <= {200, 202, 400, 404, 409, 422}, seen
    assert seen & {200, 202, 404, 422}, seen


def test_an_answer_that_is_not_as_described_is_seen(console: Console) -> None:
    told = described(console)
    told["components"]["schemas"]["Glance"]["properties"]["incidents"] = {"type": "string"}
    operation = schemathesis.openapi.from_dict(told)["/api/runs"]["GET"]
    case = operation.Case()
    answer = case.call(
        base_url=f"http://127.0.0.1:{console.port}", headers={"authorization": f"Bearer {console.viewer}"}
    )
    with pytest.raises(FailureGroup) as found:
        case.validate_response(answer, checks=[response_schema_conformance])
    assert "Response violates schema" in str(found.value.exceptions[0])


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "QUERY", "X"])
def test_what_there_is_not_is_no_fault_of_ours(console: Console, method: str) -> None:
    assert console.call(method, "/api/runs/demo/plan", console.approver).status == 405


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 60_000,
        b"GET / HTTP/1.1\r\nx: " + b"a" * 60_000,
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
        b"\r\n" * 2000,
        b"GET /%00%ff%2e%2e/ HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /api/runs/../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_what_is_no_call_ends_the_line_and_nothing_else(console: Console, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", console.port), timeout=20) as link:
        link.sendall(raw)
        link.shutdown(socket.SHUT_WR)
        came = b""
        try:
            while part := link.recv(4096):
                came += part
        except ConnectionError:
            pass
    assert came == b"" or came.split(b" ")[1] in {b"400", b"401", b"404", b"431"}, came[:100]
    assert console.get("/api/runs").status == 200


def test_a_log_full_of_markup_stays_text(console: Console) -> None:
    run = console.audit.parents[1] / "demo"
    status = json.loads((run / "status.json").read_text())
    status["text"] = status["held"] = HOSTILE
    status["view"]["nodes"]["n0"]["unhealthy"] = [HOSTILE, "\ud83d\ude00 </script>"]
    (run / "status.json").write_text(json.dumps(status))
    until = time.monotonic() + 20
    while not (why := console.get("/api/runs/demo/nodes").json()["slots"][0]["holder"]["why"]):
        assert time.monotonic() < until
    assert why == [HOSTILE, "\U0001f600 </script>"]
    for end in ("", "/nodes", "/plan", "/plan.txt", "/story", "/story.txt", "/incidents", "/incidents/1"):
        answer = console.call("GET", f"/api/runs/demo{end}", console.viewer)
        assert answer.status == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"] in {"application/json", "text/plain; charset=utf-8"}
        assert not set("\x1b\x00\x9b\u202e") & set(answer.text)
        if not end.endswith(".txt"):
            assert not set(b"<>&") & set(answer.body)


# --- the process ---------------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "console")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )
    secret.chmod(0o600)
    return str(cert), str(secret)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("it does not listen")


def test_over_tls_as_a_process_that_gives_way_and_ends_when_told(tmp_path: Path) -> None:
    journaled(tmp_path / "runs", training())
    cert, key = certificate(tmp_path)
    store = str(tmp_path / "tokens.json")
    token = tokens.add(store, "ops", Role.VIEWER, time.time())
    port = free_port()
    command = [sys.executable, "-m", "supervisor", "console", str(tmp_path / "runs"), "--listen", f"127.0.0.1:{port}"]
    command += ["--tokens", store, "--audit", str(tmp_path / "audit.jsonl"), "--cert", cert, "--key", key]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(port, process)
        trusting = ssl.create_default_context(cafile=cert)
        link = HTTPSConnection("127.0.0.1", port, timeout=20, context=trusting)
        link.request("GET", "/api/runs/demo/events", headers={"authorization": f"Bearer {token}"})
        came = link.getresponse()
        assert came.status == 200
        assert came.headers["strict-transport-security"]
        assert came.readline() == b"retry: 2000\n"
        plain = HTTPConnection("127.0.0.1", port, timeout=20)
        plain.request("GET", "/", headers={"authorization": f"Bearer {token}"})
        with pytest.raises((HTTPException, OSError)):
            plain.getresponse()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
        assert process.returncode in {0, -signal.SIGTERM}
        assert out.startswith(f"relight console on https://127.0.0.1:{port}/")
        assert "Traceback" not in err
        link.close()
    finally:
        process.kill()
        process.wait()


def test_a_place_that_is_taken_is_told_in_a_line(tmp_path: Path) -> None:
    store = str(tmp_path / "tokens.json")
    tokens.add(store, "ops", Role.VIEWER, time.time())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "supervisor", "console", "--listen", place, "--tokens", store]
        command += ["--audit", str(tmp_path / "a")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("relight: ")
