"""Whatever is sent, the hub neither raises nor forgets what it knew."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.agent.board import KINDS, Board
from supervisor.evidence.iterations import read_iteration
from supervisor.evidence.scan import scan
from supervisor.observe.connection import Connection
from supervisor.observe.hub import Hub

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["ok", "step", "save", "n000", "0", "1"])
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)
small = st.integers(-1, 3)
said = st.fixed_dictionaries(
    {"k": st.sampled_from(KINDS) | anything, "r": small | anything, "a": small | anything},
    optional=dict.fromkeys(("t", "step", "loss", "phase", "pid", "samples", "seconds", "checkpoint", "digest", "next", "batch", "state", "type", "text", "where", "rank", "attempt", "node", "code", "signal", "wall", "refused", "tp", "pp", "dp", "dropped", "non_finite", "from_log"), small | anything),
)  # fmt: skip
found = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("attempt", "kind", "role", "category", "text", "wall", "line", "file", "rank", "blames", "offset_bound"),
        small | anything,
    ),
)
messages = st.fixed_dictionaries(
    {"type": st.sampled_from(["beat", "rank", "finding", "captured", "gone", "hello", "checked"]) | anything},
    optional={
        "m": said | anything, "ranks": st.lists(st.lists(small | anything, max_size=6), max_size=4) | st.dictionaries(st.text(max_size=3), anything) | anything,
        "finding": found | anything, "attempt": small | anything, "incident": small | anything, "wall": anything, "echo": anything, "dropped": anything,
        "ended": small | anything, "took_s": small | anything, "checks": small | anything, "for": small | anything,
    },
)  # fmt: skip


class Transport:
    """Stands for the network: it takes what is written and knows whether it was closed."""

    def __init__(self):
        self.closed = False

    def write(self, data):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.closed

    def abort(self):
        self.closed = True


def connected():
    hub = Hub("", "secret", lambda: 5.0, lambda: None, 0.5)
    hub.set_attempt(1, 1, 4, ["n000"])
    hub.set_attempt(1, 2, 4, ["n000"])
    connection = Connection(hub, lambda: 5.0)
    connection._transport = Transport()
    return hub, connection


HELLO = json.dumps({"type": "hello", "token": "secret", "node": "n000", "pid": 1, "wall": 5.0}).encode() + b"\n"
PROOF = json.dumps({"type": "rank", "m": {"k": "hello", "r": 3, "a": 2, "t": 5.0}}).encode() + b"\n"


@settings(max_examples=120, deadline=None)
@given(st.lists(messages | anything, max_size=12))
def test_hostile_messages(lines):
    hub, connection = connected()
    connection.data_received(HELLO)
    hub.capture(1, 2)
    for line in lines:
        connection.data_received(json.dumps(line).encode("utf-8", "surrogatepass") + b"\n")
    connection.data_received(PROOF)
    for attempt in (1, 2):
        shown = hub.progress(attempt, 6.0)
        assert sum(shown.phases.values()) == 4
        assert all(0 <= rank < 4 for rank in (*shown.started, *shown.behind, *shown.loaded))
        assert all(e.attempt == attempt for e in shown.exits)
        json.dumps([f.text for f in hub.findings(attempt)], allow_nan=False)
    assert 3 in hub.progress(2, 6.0).started
    assert hub.capture_state() is not None
    assert hub.connected()["n000"].gone_attempt <= 1


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_hostile_bytes_before_and_after_hello(chunks):
    hub, connection = connected()
    for chunk in chunks:
        connection.data_received(chunk)
    assert hub.connected() == {}
    hub, connection = connected()
    connection.data_received(HELLO)
    for chunk in chunks:
        connection.data_received(chunk)
    connection.data_received(b"\n" + PROOF)
    assert hub.progress(2, 6.0).started == {3}


@given(st.lists(said | anything, max_size=12))
def test_hostile_datagrams(lines):
    board = Board()
    for line in lines:
        board.take(line, 1.0)
    rows = board.rows(2.0)
    assert all(
        type(rank) is int and phase in {"start-up", "load", "step", "save", "evaluation", "shutdown"}
        for rank, _, phase, _, _ in rows
    )
    board.take({"k": "hello", "r": 3, "a": 1 << 50}, 1.0)
    assert board.again(1 << 50)


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["iteration", " 4/", " 9 |", "lm loss", ":", " nan", "1e999", "|", " "])).map("".join)
)
def test_hostile_log_lines(line):
    match = scan(line)
    assert match is None or match.text in line
    row = read_iteration(line)
    assert row is None or row.step >= 0
