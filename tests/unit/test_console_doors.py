"""The doors of the console over real HTTP: who gets in, how much, what goes out with each answer, what is put on record."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import training
from console_run import Console, Controller, event, journaled, listen, shown, waiting

from supervisor.console import tokens
from supervisor.console.audit import Audit
from supervisor.console.limits import Bucket, Buckets, Limits
from supervisor.console.page_files import FILES, POLICY

READS = [
    "/api/runs",
    *(
        f"/api/runs/demo{end}"
        for end in (
            "",
            "/nodes",
            "/plan",
            "/plan.txt",
            "/story",
            "/story.txt",
            "/incidents",
            "/incidents/1",
            "/incidents/1/report.md",
            "/incidents/1/report.html",
            "/line",
            "/checkpoints",
            "/drills",
            "/losses",
            "/ledger",
            "/events",
        )
    ),
    "/metrics",
    "/api/openapi.json",
    "/api/runs/nobody",
    "/nothing/here",
]
ASKS = [
    f"/api/runs/demo/{end}" for end in ("plan/approve", "plan/refuse", "plan/change", "pause", "resume", "halt", "stop")
]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    root = tmp_path_factory.mktemp("doors")
    journaled(root, waiting())
    with Console(root, Limits(reads=(1000, 1000), asks=(1000, 1000))) as one:
        yield one


def test_these_are_all_the_routes_there_are(console: Console) -> None:
    told = console.get("/api/openapi.json").json()["paths"]
    calls = {(method, path.replace("{run}", "demo").replace("{number}", "1")) for path in told for method in told[path]}
    assert {path for method, path in calls if method == "get"} == set(READS) - {
        "/api/openapi.json",
        "/api/runs/nobody",
        "/nothing/here",
    }
    assert {path for method, path in calls if method == "post"} == set(ASKS)
    assert all(method in {"get", "post"} for method, _ in calls)


@pytest.mark.parametrize("path", [*READS, *ASKS])
def test_without_or_with_a_wrong_token_nothing_is_answered(console: Console, path: str) -> None:
    wrong = console.viewer[:-1] + ("A" if console.viewer[-1] != "A" else "B")
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        for token in (None, "", wrong):
            refused = console.call(method, path, token, b"{}")
            assert refused.status == 401, (method, token)
            assert refused.headers["www-authenticate"] == "Bearer"
            assert b"demo" not in refused.body
    basic = console.call("GET", path, None, authorization=f"Basic {console.viewer}")
    assert basic.status == 401
    in_the_address = console.call("GET", f"{path}?token={console.viewer}&access_token={console.viewer}", None)
    assert in_the_address.status == 401
    cookie = console.call("GET", path, None, cookie=f"token={console.viewer}; authorization=Bearer {console.viewer}")
    assert cookie.status == 401


@pytest.mark.parametrize("path", ASKS)
def test_a_viewer_asks_for_nothing(console: Console, path: str, tmp_path: Path) -> None:
    refused = console.post(path, {"why": "x", "digest": "abcdef"}, console.viewer)
    assert refused.status == 403
    assert "approver may" in refused.json()["detail"]
    assert console.record()[-1]["outcome"] == "role viewer may not"


def test_a_refused_call_files_nothing(console: Console) -> None:
    folder = console.audit.parents[1] / "demo" / "requests"
    before = sorted(folder.iterdir())
    for path in ASKS:
        console.post(path, {"why": "x", "digest": "abcdef"}, console.viewer)
        console.call("POST", path, None, b'{"why": "x"}')
    assert sorted(folder.iterdir()) == before
    console.post("/api/runs/demo/pause", {})
    assert sorted(folder.iterdir()) != before  # the same folder, and it can be seen to change


def test_each_answer_is_marked(console: Console) -> None:
    for answer in (
        console.get("/api/runs"),
        console.call("GET", "/api/runs", None),
        console.get("/no"),
        console.get("/"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_the_front_door_is_the_page_and_holds_nothing_of_a_run(console: Console) -> None:
    seen = console.call("GET", "/", None)
    assert (seen.status, seen.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "token" in seen.text
    for path in FILES:
        one = console.call("GET", path, None)
        assert (one.status, one.headers["x-content-type-options"]) == (200, "nosniff")
        assert one.headers["content-security-policy"] == POLICY.decode()
        assert "unsafe" not in one.headers["content-security-policy"]
        assert console.call("POST", path, None, b"{}").status == 401
        assert "demo" not in one.text
    for path in ("/page/", "/page/index.html", "/page/none.js", "/page/../api.py", "/page/%2e%2e%2fapi.py"):
        assert console.call("GET", path, None).status == 401
        assert console.call("GET", path, console.viewer).status == 404


def test_a_body_that_is_too_large_is_not_taken(console: Console) -> None:
    big = json.dumps({"why": "x" * 20_000}).encode()
    assert console.call("POST", "/api/runs/demo/pause", console.approver, big).status == 413
    chunked = (big[i : i + 100] for i in range(0, len(big), 100))
    assert console.call("POST", "/api/runs/demo/pause", console.approver, chunked).status == 413  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 16_000,
        b"null",
        b'{"why": 1}',
        b'{"why": "x", "other": 1}',
        b'{"why": NaN}',
        b"\xff\xfe",
        b'{"why": "\\ud800"}',
    ],
)
def test_a_body_that_is_none_is_told_so(console: Console, body: bytes) -> None:
    answer = console.call("POST", "/api/runs/demo/pause", console.approver, body)
    assert answer.status in {400, 422}
    assert answer.json()["detail"]


def test_a_slow_body_is_not_waited_for(tmp_path: Path) -> None:
    journaled(tmp_path, training())
    with (
        Console(tmp_path, replace(Limits(), body_s=0.1)) as console,
        socket.create_connection(("127.0.0.1", console.port)) as link,
    ):
        head = f"POST /api/runs/demo/pause HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {console.approver}\r\n"
        link.sendall(f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode())
        link.settimeout(10)
        assert link.recv(100).startswith(b"HTTP/1.1 408 ")


def test_too_many_calls_wait_and_another_token_does_not(tmp_path: Path) -> None:
    journaled(tmp_path, training())
    with Console(tmp_path, Limits(reads=(0.001, 3), asks=(0.001, 1))) as console:
        assert [console.get("/api/runs").status for _ in range(5)] == [200, 200, 200, 429, 429]
        assert int(console.get("/api/runs").headers["retry-after"]) > 100
        # A flood without a token takes nothing from those who have one.
        assert [console.call("GET", "/api/runs", None).status for _ in range(10)] == [401] * 10
        assert console.get("/api/runs", console.approver).status == 200


def test_a_token_that_is_taken_away_ends_at_once(console: Console) -> None:
    extra = tokens.add(console.tokens, "guest", tokens.Role.VIEWER, time.time())
    assert console.get("/api/runs", extra).status == 200
    tokens.remove(console.tokens, "guest")
    assert console.get("/api/runs", extra).status == 401


def test_what_is_asked_is_put_on_record_before_and_after(tmp_path: Path) -> None:
    scene = waiting()
    with Console(tmp_path) as console, Controller(journaled(tmp_path, scene), scene):
        digest = scene.history.decision_digest
        console.post("/api/runs/demo/plan/approve", {"digest": digest})
        rows = [one for one in console.record() if one["what"] == "approve"]
    assert [one["outcome"] for one in rows] == ["asked", "done"]
    assert all(one["who"] == "li.wei" and one["from"] == "127.0.0.1" and one["digest"] == digest for one in rows)
    assert rows[0]["request"] == rows[1]["request"]
    assert console.audit.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_put_on_record_is_not_done(tmp_path: Path) -> None:
    run = journaled(tmp_path, waiting())
    with Console(tmp_path) as console:
        console.audit.unlink()
        console.audit.mkdir()  # no line can be added to a folder
        answer = console.post("/api/runs/demo/pause", {})
        assert answer.status == 503
        assert [p for p in Path(run.path("requests")).iterdir() if p.suffix == ".json"] == []
        assert console.call("GET", "/api/runs", None).status == 401


def test_a_flood_of_refusals_does_not_fill_the_disk(tmp_path: Path) -> None:
    now = [0.0]
    log = Audit(str(tmp_path / "a"), wall=lambda: 1.0, ticks=lambda: now[0])
    for _ in range(10_000):
        log.refused("", "1.2.3.4", "GET /", "no valid token")
    lines = (tmp_path / "a").read_text().splitlines()
    assert len(lines) == 101
    now[0] = 1.0
    log.refused("", "1.2.3.4", "GET /", "no valid token")
    assert json.loads((tmp_path / "a").read_text().splitlines()[-1])["left_out"] == 9_900


def test_a_bucket_fills_up_again() -> None:
    now = [0.0]
    bucket = Bucket(0.5, 2, lambda: now[0])
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    assert bucket.wait_s == 2
    now[0] = 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]
    now[0] = 1000.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_many_keys_take_no_memory() -> None:
    buckets = Buckets(1, 1)
    first = buckets.of("0")
    for key in range(Buckets.KEPT):
        buckets.of(str(key))
    assert buckets.of("0") is first
    for key in range(Buckets.KEPT + 1):
        buckets.of(f"other {key}")
    assert buckets.of("0") is not first


def test_a_client_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    journaled(tmp_path, training())
    with Console(tmp_path, replace(Limits(), head_s=0.3)) as console:
        silent = [socket.create_connection(("127.0.0.1", console.port), timeout=20) for _ in range(20)]
        for number, link in enumerate(silent):
            link.sendall(b"GET / HTTP/1.1\r\nx"[:number])
        assert [link.recv(1) for link in silent] == [b""] * 20
        kept = socket.create_connection(("127.0.0.1", console.port), timeout=20)
        kept.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200 ")
        kept.sendall(b"GET / HT")  # and the second head is never finished
        while kept.recv(4096):
            pass
        for link in (kept, *silent):
            link.close()


def test_a_stream_is_no_client_that_says_nothing(tmp_path: Path) -> None:
    scene = training()
    run = journaled(tmp_path, scene)
    with Console(tmp_path, replace(Limits(), head_s=0.1)) as console:
        link, came = listen(console)
        event(came)
        scene.step(46)
        shown(run, scene)
        assert event(came)["step"] == 46  # the next look is a second later
        link.close()
