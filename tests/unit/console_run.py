"""A run directory as a controller leaves it, a controller that answers requests in it, and a console over it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Self

from builders import APPROVE, Scene, finding, row, training

from policies.decisions import Continue
from policies.reasons import Reason
from supervisor.answers import judge
from supervisor.console import tokens
from supervisor.console.limits import Limits
from supervisor.console.serve import Where, server
from supervisor.console.tokens import Role
from supervisor.durable import show_whole
from supervisor.gate import Held
from supervisor.journal import requests
from supervisor.journal.journal import Journal
from supervisor.journal.lease import Lease
from supervisor.rundir import RunDir
from supervisor.settings import Settings, freeze
from supervisor.telling.status import status_json

HOSTILE = "<script>alert(1)</script>\x1b[2J\x1b]0;x\x07\u202e</pre>\"'& --> \x00"


def waiting(text: str = HOSTILE) -> Scene:
    """A node is lost, its log is hostile, and the plan waits for a person."""
    scene = training(APPROVE)
    found = replace(
        finding("xid", "root", 1, scene.now - 1), text=text, node="n1", file=f"/logs/{text}".replace("\x00", "")
    )
    scene.view = replace(scene.view, findings=(found,))
    scene.lose("n1")
    scene.die(1)
    for _ in range(40):
        scene.wait(5)
        scene.settle()
        if scene.history.decision_digest:
            return scene
    raise AssertionError("no plan was made")


def journaled(root: Path, scene: Scene, name: str = "demo") -> RunDir:
    """The run directory of a story, as its controller would have left it."""
    run = RunDir(str(root / name))
    run.create()
    freeze(run.root, Settings.model_validate({"run": {"name": name, "tokens_per_sample": 10}, "layout": {"dp": 3}}))
    journal, _ = Journal.begin(run.journal, lambda: scene.stamped[0].at, "h", 1)
    for one in scene.stamped[1:]:
        journal.append([one.entry], one.at)
    journal.close()
    shown(run, scene)
    for attempt, steps in ((1, range(1, 46)), (2, range(41, 50))):
        lines = [json.dumps(asdict(row(step, attempt, loss=1 / step))) for step in steps]
        Path(run.path("steps", f"a{attempt:04d}.jsonl")).write_text("\n".join(lines) + "\n")
    return run


def shown(run: RunDir, scene: Scene) -> None:
    """status.json."""
    decision = scene.last.decision if scene.last else Continue(Reason.RUNNING)
    held = Held("waits for a person (mode approve)", asks=True) if scene.history.decision_digest else None
    data = json.dumps(status_json(scene.view, decision or Continue(Reason.RUNNING), held, scene.now))
    show_whole(run.path("status.json"), data.encode())


class Controller:
    """What of a controller the console meets: it is alive, judges requests, journals, makes the plan anew."""

    def __init__(self, run: RunDir, scene: Scene) -> None:
        self._run, self._scene = run, scene
        self._journal, _ = Journal.begin(run.journal, lambda: scene.now, "h", 2)
        Lease(run.path("lease"), time.time())
        self._over, self.deaf, self.answered = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._journal.close()

    def _work(self) -> None:
        while not self._over.wait(0.01):
            for request in [] if self.deaf.is_set() else requests.pending(self._run.root):
                before = len(self._scene.stamped)
                reply = judge(request, self._scene.history, self._scene.view, self._scene.now)
                self._scene.say(*reply.entries)
                if request.what == "choose":
                    self._scene.settle()
                for one in self._scene.stamped[before:]:
                    self._journal.append([one.entry], one.at)
                shown(self._run, self._scene)
                requests.answer(self._run.root, reply.answer)
                self.answered.set()


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Console:
    """A console over a folder of runs on a port of its own, with a token for each role."""

    def __init__(self, root: Path, limits: Limits | None = None, answer_s: float = 5.0) -> None:
        self.tokens, self.audit = str(root / "conf" / "tokens.json"), root / "state" / "audit.jsonl"
        self.viewer = tokens.add(self.tokens, "ops", Role.VIEWER, time.time())
        self.approver = tokens.add(self.tokens, "li.wei", Role.APPROVER, time.time())
        where = Where((str(root),), port=0, tokens=self.tokens, audit=str(self.audit), answer_s=answer_s)
        self._server = server(where, limits)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    def call(self, method: str, path: str, token: str | None, body: bytes | None = None, **headers: str) -> Reply:
        link = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            given = {"authorization": f"Bearer {token}"} if token is not None else {}
            link.request(method, path, body, {"content-type": "application/json", **given, **headers})
            came = link.getresponse()
            return Reply(came.status, {k.lower(): v for k, v in came.getheaders()}, came.read())
        finally:
            link.close()

    def get(self, path: str, token: str | None = None) -> Reply:
        return self.call("GET", path, token or self.viewer)

    def post(self, path: str, body: object, token: str | None = None) -> Reply:
        return self.call("POST", path, token or self.approver, json.dumps(body).encode())

    def record(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


def listen(console: Console) -> tuple[HTTPConnection, HTTPResponse]:
    link = HTTPConnection("127.0.0.1", console.port, timeout=20)
    link.request("GET", "/api/runs/demo/events", headers={"authorization": f"Bearer {console.viewer}"})
    came = link.getresponse()
    return link, came


def event(came: HTTPResponse) -> dict[str, object]:
    while line := came.readline():
        if line.startswith(b"data: "):
            return dict(json.loads(line[6:]))
    raise AssertionError("the stream has ended")
