"""The hub over real connections: who is let in, what is believed, what is counted."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from policies.facts import Phase
from supervisor.observe.connection import LINE
from supervisor.observe.hub import Hub

DEADLINE_S = 10
WALL = 1000.0


class Clock:
    def __init__(self):
        self.now = WALL

    def __call__(self):
        return self.now


class Bench:
    """A hub and raw connections to it."""

    def __init__(self, run_dir="", world=8, nodes=("n000", "n001"), attempt=1):
        self.clock = Clock()
        self.events = 0
        self.woken = asyncio.Event()
        self.hub = Hub(str(run_dir), "secret", self.clock, self.count, beat_s=0.5, silent_s=6.0)
        self.hub.set_attempt(3, attempt, world, nodes)
        self.open = []

    def count(self):
        self.events += 1
        self.woken.set()

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.woken.clear()
                await self.woken.wait()

    async def __aenter__(self):
        self.port = await self.hub.start()
        return self

    async def __aexit__(self, *_):
        for writer in self.open:
            writer.close()
        await self.hub.close()

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.open.append(writer)
        return Peer(reader, writer, self)

    async def agent(self, node="n000"):
        peer = await self.connect()
        peer.write(
            {"type": "hello", "token": "secret", "node": node, "pid": 7, "start_ticks": 1, "wall": self.clock.now - 100}
        )
        assert (await peer.read())["type"] == "welcome"
        return peer


class Peer:
    def __init__(self, reader, writer, bench):
        self.reader, self.writer, self.bench = reader, writer, bench

    def write(self, message):
        self.writer.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")

    async def read(self):
        async with asyncio.timeout(DEADLINE_S):
            return json.loads(await self.reader.readline())

    async def taken(self):
        """Wait until everything written so far has been taken: what is behind it has arrived."""
        beat = self.bench.clock.now = self.bench.clock.now + 1e-6
        self.write({"type": "beat", "ranks": []})
        self.write({"type": "gone", "attempt": 0})  # this one wakes
        await self.bench.until(lambda: any(agent.last_beat >= beat for agent in self.bench.hub.connected().values()))

    async def is_closed(self):
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    async def say(self, *messages, rank=0, attempt=1):
        for message in messages:
            self.write(
                {
                    "type": "rank",
                    "node": "n000",
                    "m": {"r": rank, "a": attempt, "t": self.bench.clock.now - 100, **message},
                }
            )
        await self.taken()


def play(scene, **more):
    async def run():
        async with Bench(**more) as bench:
            return await scene(bench)

    return asyncio.run(run())


def view(bench, attempt=1):
    return bench.hub.progress(attempt, bench.clock.now)


def test_an_agent_with_the_token_is_welcomed():
    async def scene(bench):
        peer = await bench.connect()
        peer.write({"type": "hello", "token": "secret", "node": "n001", "pid": 7, "wall": WALL})
        welcome = await peer.read()
        assert {k: welcome[k] for k in ("type", "epoch", "attempt", "beat_s")} == {
            "type": "welcome",
            "epoch": 3,
            "attempt": 1,
            "beat_s": 0.5,
        }
        assert list(bench.hub.connected()) == ["n001"]
        assert bench.events == 1

    play(scene)


@pytest.mark.parametrize(
    "first",
    [
        {"type": "hello", "token": "wrong", "node": "n", "pid": 1, "wall": 1.0},
        {"type": "hello", "token": "sécret", "node": "n", "pid": 1, "wall": 1.0},
        {"type": "hello", "token": None, "node": "n", "pid": 1, "wall": 1.0},
        {"type": "hello", "token": "secret", "node": "../n", "pid": 1, "wall": 1.0},
        {"type": "beat", "token": "secret", "node": "n", "pid": 1, "wall": 1.0},
        b"GET / HTTP/1.1",
        b"[" * 60_000,
        b"x" * (LINE + 1),
    ],
)
def test_whoever_does_not_say_the_token_is_sent_away(first):
    async def scene(bench):
        peer = await bench.connect()
        peer.write(first)
        assert await peer.is_closed()
        assert bench.hub.connected() == {}
        assert bench.hub.ignored_count == 1

    play(scene)


def test_a_line_that_is_too_long_ends_the_connection():
    async def scene(bench):
        peer = await bench.agent()
        peer.write(b"x" * (LINE + 1))
        assert await peer.is_closed()

    play(scene)


def test_a_second_agent_of_a_node_replaces_the_first():
    async def scene(bench):
        first = await bench.agent()
        second = await bench.agent()
        assert await first.is_closed()
        await second.taken()
        assert list(bench.hub.connected()) == ["n000"]

    play(scene)


def test_nonsense_is_ignored_and_counted():
    async def scene(bench):
        peer = await bench.agent()
        nonsense = [
            b"{", b"7", b"[]", {"type": "fly"}, {"type": []}, {"type": "rank"}, {"type": "rank", "m": {"k": "step", "r": -1, "a": 1}},
            {"type": "rank", "m": {"k": "step", "r": 8, "a": 1, "step": 1}}, {"type": "rank", "m": {"k": "step", "r": 1, "a": 9, "step": 1}},
            {"type": "rank", "m": {"k": "step", "r": True, "a": 1, "step": 1}}, {"type": "rank", "m": {"k": "step", "r": 1, "a": 1, "step": "1"}},
            {"type": "rank", "m": {"k": "loaded", "r": 1, "a": 1}}, {"type": "rank", "m": {"k": "exit", "r": 1, "a": 1, "rank": 2}},
            {"type": "finding", "finding": {"attempt": 1, "kind": "x", "role": "guilty", "category": "", "text": ""}},
            {"type": "checked"}, {"type": "checked", "ended": 1.0, "took_s": 1.0, "checks": -1, "for": 0},
            {"type": "checked", "ended": 1.0, "took_s": 1.0, "checks": 9, "for": 1 << 40},
            {"type": "captured", "incident": 1, "ranks": {}}, {"type": "gone", "attempt": 1}, {"type": "gone", "attempt": -1},
            {"type": "beat", "ranks": [[0, 1, "step"], [99, 1, "step", 1, 0.0], [0, 1, "step", 1, "0"], [[], {}, 1, 1, 1.0]]},
        ]  # fmt: skip
        for message in nonsense:
            peer.write(message)
        await peer.taken()
        assert bench.hub.ignored_count == len(nonsense) + 3
        assert bench.hub.drain_rows() == []
        assert view(bench).frontier == 0
        assert list(bench.hub.connected()) == ["n000"]

    play(scene)


def test_beats_move_the_aggregate_and_their_idle_time_counts():
    async def scene(bench):
        peer = await bench.agent()
        peer.write(
            {"type": "beat", "wall": WALL, "dropped": 5, "ranks": [[0, 1, "step", 7, 2.5], [1, 1, "step", 6, 3.5]]}
        )
        await peer.taken()
        shown = view(bench)
        assert shown.phases == {Phase.STEP: 2, Phase.START_UP: 6}
        assert shown.last_advance == pytest.approx(WALL - 2.5, abs=0.01)
        assert bench.hub.dropped["n000"] == 0  # the newest beat says so

    play(scene)


def test_the_offset_of_a_clock_is_learned_from_the_echo():
    async def scene(bench):
        peer = await bench.agent()
        assert bench.hub.connected()["n000"].offset_bound == 1.0  # a guess from hello alone
        bench.clock.now += 0.2
        peer.write({"type": "beat", "wall": WALL - 100 + 0.1, "echo": WALL, "ranks": []})
        await peer.taken()
        agent = bench.hub.connected()["n000"]
        assert agent.offset == pytest.approx(100.0, abs=0.01)
        assert agent.offset_bound == pytest.approx(0.1, abs=0.01)

    play(scene)


def test_what_happened_while_nobody_listened_keeps_its_time():
    async def scene(bench):
        peer = await bench.agent()
        bench.clock.now += 60
        peer.write({"type": "rank", "m": {"k": "step", "r": 7, "a": 1, "t": WALL - 100 + 5, "step": 1, "loss": 2.0}})
        await peer.taken()
        assert view(bench).last_step.at == pytest.approx(WALL + 5, abs=0.01)

    play(scene)


def test_rows_are_drained_once():
    async def scene(bench):
        peer = await bench.agent()
        await peer.say(
            {"k": "step", "step": 1, "loss": 2.0},
            {"k": "step", "step": 1, "loss": 2.0},
            {"k": "step", "step": 2, "loss": None, "non_finite": True},
            rank=7,
        )
        assert [(r.step, r.loss) for r in bench.hub.drain_rows()] == [(1, 2.0), (2, None)]
        assert bench.hub.drain_rows() == []
        assert view(bench).non_finite.step == 2

    play(scene)


def test_restored_rows_count_but_are_not_drained_again():
    async def scene(bench):
        peer = await bench.agent()
        await peer.say({"k": "step", "step": 1, "loss": 2.0}, rank=7)
        rows = bench.hub.drain_rows()
        other = Bench()
        other.hub.restore(1, rows)
        assert other.hub.drain_rows() == []
        assert view(other).frontier == 1

    play(scene)


def test_a_planted_loss_is_seen_in_the_replay():
    async def scene(bench):
        peer = await bench.agent()
        await peer.say(*({"k": "step", "step": n, "loss": 2.0} for n in (1, 2)), rank=7)
        before = {row.step: row for row in bench.hub.drain_rows()}
        bench.hub.set_attempt(3, 2, 8)
        bench.hub.set_reference(2, before, 1e-3)
        await peer.say({"k": "step", "step": 1, "loss": 2.0}, {"k": "step", "step": 2, "loss": 2.5}, rank=7, attempt=2)
        replay = view(bench, 2).replay
        assert (replay.compared, replay.differing, replay.first_differing) == (2, 1, 2)

    play(scene)


def test_an_exception_is_a_finding_in_our_time():
    async def scene(bench):
        peer = await bench.agent()
        await peer.say(
            {"k": "exception", "type": "ValueError", "text": "bad \x1b[2J sample", "where": "a.py:3 in f"}, rank=5
        )
        await peer.say({"k": "exception", "type": "DistBackendError", "text": "Connection closed by peer"}, rank=6)
        first, second = bench.hub.findings(1)
        assert (first.role, first.category, first.rank, first.node) == ("root", "software.user", 5, "n000")
        assert first.wall == pytest.approx(WALL, abs=0.01)
        assert "\x1b" not in first.text
        assert second.role == "cascade"

    play(scene)


def test_a_finding_comes_once_and_floods_are_cut():
    async def scene(bench):
        peer = await bench.agent()
        found = {"attempt": 1, "kind": "x", "role": "root", "category": "data", "text": "t", "file": "f", "line": 1}
        for line in (1, 1, *range(2, 900)):
            peer.write({"type": "finding", "finding": {**found, "line": line}})
        await peer.taken()
        assert len(bench.hub.findings(1)) == 500

    play(scene)


def test_gone_counts_for_older_attempts_only():
    async def scene(bench):
        peer = await bench.agent()
        bench.hub.set_attempt(3, 4, 8)
        peer.write({"type": "gone", "attempt": 3})
        peer.write({"type": "gone", "attempt": 4})
        await peer.taken()
        assert bench.hub.connected()["n000"].gone_attempt == 3
        messages = [await peer.read()]
        assert (messages[0]["type"], messages[0]["attempt"]) == ("attempt", 4)

    play(scene)


def test_a_round_of_checks_is_news_the_first_time_and_when_it_was_asked_for():
    def checked(bench):
        return bench.hub.connected()["n000"].checked

    async def scene(bench):
        peer = await bench.agent()
        await peer.taken()
        assert checked(bench) is None
        told = {"type": "checked", "node": "n000", "took_s": 0.5, "checks": 9}
        changes = []
        for incident, ended in ((0, 10.0), (0, 70.0), (2, 75.0), (2, 130.0)):
            before = bench.hub.changes
            peer.write({**told, "ended": ended, "for": incident})
            await peer.taken()
            assert round(checked(bench).at) == ended + 100
            changes.append(bench.hub.changes - before)
        assert changes == [changes[1] + 1, changes[1], changes[1] + 1, changes[1]]
        assert (checked(bench).checks, checked(bench).incident) == (9, 2)
        bench.hub.check("n000", 3)
        bench.hub.check("n007", 3)  # nobody is there to hear it
        asked = await peer.read()
        assert (asked["type"], asked["incident"], asked["epoch"]) == ("check", 3, 3)
        await bench.agent()  # another process for the same node: what its checks say is not known yet
        assert checked(bench) is None

    play(scene)


def test_silent_agents_are_named():
    async def scene(bench):
        peer = await bench.agent()
        await peer.taken()
        assert view(bench).silent_agents == {"n001"}
        bench.clock.now += 7
        assert view(bench).silent_agents == {"n000", "n001"}

    play(scene)


def test_a_capture_waits_for_all_and_counts_what_is_missing():
    async def scene(bench):
        one, two = await bench.agent("n000"), await bench.agent("n001")
        assert bench.hub.capture_state() is None
        told = []
        bench.hub.capture(7, 1, 30)
        bench.hub.when_captured(told.append)
        assert (await one.read())["incident"] == 7
        one.write(
            {
                "type": "captured",
                "incident": 7,
                "attempt": 1,
                "ranks": {"0": "ok", "1": "unknown: it has ended", "x": "ok", "99": "ok"},
            }
        )
        await one.taken()
        state = bench.hub.capture_state()
        assert (state.done, state.kept, state.unknown, told) == (False, 1, 1, [])
        two.writer.close()  # it will not answer any more
        await bench.until(lambda: told)
        state = bench.hub.capture_state()
        assert (state.done, state.kept, state.unknown, told) == (True, 1, 7, [7])

    play(scene)


def test_a_capture_ends_at_its_deadline():
    async def scene(bench):
        await bench.agent()
        bench.hub.capture(7, 1, 30)
        assert not bench.hub.capture_state().done
        bench.clock.now += 30
        assert bench.hub.capture_state().done

    play(scene)


def test_a_capture_without_agents_is_done_at_once():
    async def scene(bench):
        told = []
        bench.hub.capture(7, 1)
        bench.hub.when_captured(told.append)
        assert told == [8]

    play(scene)


def record(**more):
    return {
        "schema": 1,
        "rank": 3,
        "node": "n001",
        "attempt": 1,
        "pid": 4,
        "code": None,
        "signal": 9,
        "wall": 1.0,
        "monotonic": 1.0,
        "refused": None,
        **more,
    }


def test_exit_records_are_read_from_disk_and_checked(tmp_path):
    folder = tmp_path / "attempts" / "0001" / "exit"
    folder.mkdir(parents=True)
    (folder / "rank_00003.json").write_text(json.dumps(record()))
    (folder / "rank_00004.json").write_text(json.dumps(record()))  # says that it is rank 3
    (folder / "rank_00005.json").write_text(json.dumps(record(rank=5, code=0)))  # both code and signal
    (folder / "rank_00006.json").write_text("{")
    (folder / "rank_00007.json").write_text(json.dumps(record(rank=7, attempt=2)))
    (folder / "rank_00099.json").write_text(json.dumps(record(rank=99)))
    (folder / "rank_00001.json").write_text(json.dumps(record(rank=1, signal=None, code=94, refused="fenced")))
    os.symlink("/dev/full", folder / "rank_00002.json.tmp")
    bench = Bench(tmp_path)
    assert bench.hub.scan_exits(1, {1}) == 1
    assert bench.hub.scan_exits(1) == 1
    assert bench.hub.scan_exits(1) == 0
    assert bench.hub.scan_exits(9) == 0
    assert sorted((e.rank, e.code, e.signal, e.refused) for e in view(bench).exits) == [
        (1, 94, None, "fenced"),
        (3, None, 9, None),
    ]
    assert bench.hub.ignored_count == 5


def test_an_exit_message_and_its_file_are_one_end(tmp_path):
    async def scene(bench):
        peer = await bench.agent()
        await peer.say({"k": "exit", **record()}, rank=3)
        assert bench.hub.scan_exits(1) == 0
        assert len(view(bench).exits) == 1

    folder = tmp_path / "attempts" / "0001" / "exit"
    folder.mkdir(parents=True)
    (folder / "rank_00003.json").write_text(json.dumps(record()))
    play(scene, run_dir=tmp_path)


def test_only_the_newest_attempts_are_remembered():
    bench = Bench()
    for attempt in (2, 3):
        bench.hub.set_attempt(3, attempt, 8)
    assert view(bench, 1).started == frozenset()
    assert view(bench, 3).number == 3
    assert view(bench, 3).phases == {Phase.START_UP: 8}
    assert not view(bench, 1).phases
