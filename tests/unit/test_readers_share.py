"""Who reads what, how long a node is waited for, how much metadata at once, and a limit that changes in use."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from builders import training

from policies.facts import UNKNOWN, NodeState
from policies.reading import may_read
from supervisor.actions import MakeView
from supervisor.checkpoints.posix import Stamp
from supervisor.checkpoints.readers_share import FIRST_S, FLOOR, NEXT_S, WINDOW, Shares
from supervisor.checkpoints.readers_store import by_threads
from supervisor.checkpoints.reading.content import FileRead, Job
from supervisor.checkpoints.reading.findings import Finding
from supervisor.checkpoints.reading.room import NoRoomError, Room, available
from supervisor.checkpoints.reading.structure import limits_for
from supervisor.checkpoints.reading.throttle import CancelledError, Pace, Throttle


def shares_of(*sizes, **more):
    return Shares([Job(f"f{number}", Stamp(size, 0, number)) for number, size in enumerate(sizes)], **more)


def give(shares, node, now=0.0):
    job = shares.choose(node)
    if job is not None:
        shares.give(node, job, now)
    return job and job.name


def done(name, *codes):
    return FileRead(name, "a" * 32, tuple(Finding(code, name, "") for code in codes))


def test_the_longest_goes_first_and_a_node_has_a_few_at_a_time():
    shares = shares_of(*range(1, 20))
    shares.join("n1")
    assert [give(shares, "n1") for _ in range(WINDOW + 1)] == ["f18", "f17", "f16", "f15", None]
    assert shares.answered("n1", done("f18"), 1.0)
    assert give(shares, "n1") == "f14"
    assert not shares.answered("n1", done("f18"), 1.0)
    assert not shares.answered("n2", done("f17"), 1.0)


def test_no_node_is_given_more_than_twice_its_share_but_always_one_file():
    shares = shares_of(90, 5, 5)
    for name in ("n1", "n2", "n3"):
        shares.join(name)
    assert give(shares, "n1") == "f0"
    shares.answered("n1", done("f0"), 0.1)
    assert give(shares, "n1") is None
    assert give(shares, "n2") == "f1"
    shares.drop("n2")
    shares.drop("n3")
    assert give(shares, "n1") == "f1"


def test_what_a_node_had_goes_back_and_what_it_said_only_when_it_is_unsaid():
    shares = shares_of(3, 2, 1)
    shares.join("n1")
    for _ in range(2):
        give(shares, "n1")
    shares.answered("n1", done("f0"), 1.0)
    assert shares.drop("n1") == []
    assert [job.name for job in shares.left()] == ["f1", "f2"]
    assert shares.drop("n1", unsay=True) == ["f0"]
    assert [job.name for job in shares.left()] == ["f0", "f1", "f2"]


def test_a_file_that_a_node_could_not_read_is_never_given_to_it_again():
    shares = shares_of(2, 1)
    shares.join("n1")
    give(shares, "n1")
    shares.unable("n1", "f0")
    assert give(shares, "n1") == "f1"
    assert give(shares, "n1") is None
    shares.join("n2")
    assert give(shares, "n2") == "f0"


def test_claims_are_those_that_nobody_here_has_read():
    shares = shares_of(2, 1)
    shares.join("n1")
    for _ in range(2):
        give(shares, "n1")
    shares.answered("n1", done("f0", "CRC"), 1.0)
    shares.answered("n1", done("f1", "ALL_ZERO"), 1.0)
    assert [job.name for job in shares.claims()] == ["f0"]
    assert not shares.is_broken
    shares.settle([done("f0", "CRC")])
    assert shares.claims() == []
    assert shares.is_broken


def test_a_node_is_late_by_its_bytes_and_by_what_others_need():
    size = int(FLOOR)  # a second at the least speed
    shares = shares_of(size, size, size)
    for name in ("n1", "n2"):
        shares.join(name)
        give(shares, name)
    assert shares.late(FIRST_S + 0.9, None) == []
    assert shares.late(FIRST_S + 1.1, None) == ["n1", "n2"]
    assert shares.late(FIRST_S + 1.1, FLOOR / 10) == []  # under a limit it takes longer
    shares.answered("n1", done("f0"), 0.001)  # a thousand times the least speed
    give(shares, "n1")
    shares.answered("n2", done("f1"), 0.001)
    assert shares.late(NEXT_S + 0.5, None) == ["n1"]


# --- who may -------------------------------------------------------------------------------------------------------


def test_while_it_trains_only_idle_spares_read():
    scene = training()
    slots = scene.history.attempt.slots
    found = may_read(scene.history, scene.view, scene.now)
    assert found.trains
    assert found.nodes == frozenset(scene.view.nodes) - set(slots)
    assert found.nodes


@pytest.mark.parametrize(
    "spoil", [{"state": NodeState.SILENT}, {"agent": False}, {"drained_by_other": True}, {"unhealthy": ("gpus: lost",)}]
)
def test_a_node_that_is_not_well_does_not_read(spoil):
    scene = training()
    spare = min(may_read(scene.history, scene.view, scene.now).nodes)
    spoilt = dict(scene.view.nodes) | {spare: replace(scene.view.nodes[spare], **spoil)}
    view = replace(scene.view, nodes=spoilt)
    assert spare not in may_read(scene.history, view, scene.now).nodes


def test_nobody_reads_where_nothing_is_seen():
    scene = training()
    assert may_read(scene.history, replace(scene.view, nodes=UNKNOWN), scene.now).nodes == frozenset()


def test_in_an_incident_every_node_that_nobody_suspects_reads():
    scene = training()
    slots = scene.history.attempt.slots
    scene.obeys = lambda action: not isinstance(action, MakeView)
    scene.lose(slots[1])
    scene.settle()
    assert scene.history.attempt.closed_at is not None
    found = may_read(scene.history, scene.view, scene.now)
    assert not found.trains
    assert found.nodes == frozenset(scene.view.nodes) - {slots[1]}
    scene.node(slots[1], state=NodeState.UP, agent=True)  # back again, and still what the incident is about
    assert slots[1] not in may_read(scene.history, scene.view, scene.now).nodes


# --- room ----------------------------------------------------------------------------------------------------------


def test_one_reading_of_metadata_always_goes_and_others_when_there_is_room():
    size = 10 << 20
    need = limits_for(size).memory
    small, large = Room(0), Room(2 * need)
    with (
        small.taken(size),
        pytest.raises(NoRoomError, match="the metadata of 1 other save is being read"),
        small.taken(0),
    ):
        pass
    with large.taken(size), large.taken(size), pytest.raises(NoRoomError, match="2 other saves"), large.taken(size):
        pass
    with large.taken(100 * size):
        pass


def test_room_is_half_of_what_is_available(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    assert available(str(tmp_path / "meminfo")) == 2000 * 1024
    assert available(str(tmp_path / "none")) == 4 << 30


# --- a limit that changes ------------------------------------------------------------------------------------------


def test_who_waits_for_a_limit_goes_on_when_it_is_lifted():
    reading = by_threads(2, 1.0)  # a byte a second
    reading.training(True)
    throttle = Throttle(reading.pace)
    throttle.take(3600)
    waiting = threading.Thread(target=throttle.take, args=(1,), daemon=True)
    waiting.start()
    reading.training(False)
    waiting.join(20)
    assert not waiting.is_alive()
    assert not throttle.limited
    reading.training(True)
    assert throttle.limited


def test_when_the_controller_ends_nobody_reads_on():
    reading = by_threads(2, 1.0)
    throttle, ended = Throttle(reading.pace), []
    throttle.take(3600)

    def take():
        with pytest.raises(CancelledError):
            throttle.take(1)
        ended.append(True)

    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    reading.end()
    waiting.join(20)
    assert ended == [True]
    for pace in (reading.pace, reading.urgent_pace):
        with pytest.raises(CancelledError):
            Throttle(pace).take(1)


def test_one_reading_is_cancelled_and_the_other_waits_on():
    pace = Pace(1.0)
    one, other = Throttle(pace), Throttle(pace)
    one.take(3600)
    ended = []

    def take(throttle, name):
        try:
            throttle.take(1)
            ended.append(name)
        except CancelledError:
            ended.append(f"{name} cancelled")

    threads = [threading.Thread(target=take, args=pair, daemon=True) for pair in ((one, "one"), (other, "other"))]
    for thread in threads:
        thread.start()
    one.cancel()
    threads[0].join(20)
    assert ended == ["one cancelled"]
    pace.set(None)
    threads[1].join(20)
    assert ended == ["one cancelled", "other"]


def test_what_is_booked_has_to_pass_before_more_may_be_read():
    now = [0.0]
    pace = Pace(10.0, clock=lambda: now[0])
    assert pace.wait_s() == 0
    assert pace.book(100) == 0
    assert pace.wait_s() == 10
    assert pace.book(10) == 10
    now[0] = 4.0
    assert pace.wait_s() == 7
    pace.set(20.0)
    assert pace.wait_s() == 0
