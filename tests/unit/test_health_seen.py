"""What the controller makes of the health of nodes: what it believes, what becomes a finding, what is shown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from policies.history import History
from policies.layout import Layout
from slurm.cluster import ClusterView, NodeCondition, NodeRow
from supervisor.observe.health import MOST, SHOWN, Nodes, finding, read_results
from supervisor.observe.hub import Hub, NodeAgent
from supervisor.observe.intake import Clock, Intake
from supervisor.observe.world import World
from supervisor.telling.status import VIEW

GOOD = {
    "name": "gpus", "state": "unhealthy", "kind": "gpu-ecc", "text": "GPU 3: 1", "when": 1060.0, "took_s": 0.2,
    "since": 1060.0, "before": 1000.0, "attempt": 1,
}  # fmt: skip
CLOCK = Clock(100.0, 0.5)


@pytest.fixture
def intake():
    one = Intake()
    one.begin(1, 8, frozenset({"n000", "n001"}))
    return one


def test_broken_hardware_is_a_root_that_began_between_two_looks(intake):
    assert len(intake.health([GOOD], "n000", CLOCK)) == 1
    (found,) = intake.found.of(1)
    assert (found.role, found.category, found.node, found.rank) == ("root", "hardware.gpu_memory", "n000", None)
    assert (found.kind, found.source, found.text) == ("gpu-ecc", "health", "gpus: GPU 3: 1")
    assert (found.wall, found.offset_bound) == (1130.0, 30.5)  # 1000 to 1060, in the controller's time


@pytest.mark.parametrize(
    ("more", "node"),
    [
        ({"attempt": 0}, "n000"),  # it was so before the attempt
        ({"before": None}, "n000"),  # it was never seen otherwise
        ({}, "n777"),  # a spare
        ({"kind": "disk-full"}, "n000"),  # only who writes is stopped by it
        ({"kind": "something-new"}, "n000"),
    ],
)
def test_what_can_t_be_why_the_attempt_stopped_is_context(intake, more, node):
    intake.health([{**GOOD, **more}], node, CLOCK)
    (found,) = intake.found.of(1)
    assert found.role == "context"


@pytest.mark.parametrize(
    ("kind", "category"),
    [
        ("disk-full", "storage.full"),
        ("disk-read-only", "storage.io"),
        ("shm-full", "oom.host"),
        ("memory-pressure", "oom.host"),
        ("gpu-lost", "hardware.gpu"),
        ("nvlink-down", "hardware.nvlink"),
        ("link-down", "hardware.network"),
        ("clock-step", "software.env"),
    ],
)
def test_categories(intake, kind, category):
    intake.health([{**GOOD, "kind": kind}], "n000", CLOCK)
    assert [found.category for found in intake.found.of(1)] == [category]


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Health check failed:  check_hw_ib:  No IB port mlx5_0:1 is ACTIVE", "hardware.network"),
        ("Health check failed:  check_fs_mount:  /data not mounted", "storage.io"),
        ("Health check failed:  check_fs_free:  /tmp has only 1 kB free", "storage.full"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "hardware.gpu"),
        ("the fan is loud", "hardware.host"),
    ],
)
def test_a_sites_command_is_read_for_what_it_speaks_of(intake, text, category):
    intake.health([{**GOOD, "kind": "site-check", "text": text}], "n000", CLOCK)
    (found,) = intake.found.of(1)
    assert (found.role, found.category) == ("context", category)


def test_what_is_still_so_is_context_of_the_next_attempt(intake):
    intake.health([GOOD, {**GOOD, "name": "disk /a", "kind": "disk-full"}], "n000", CLOCK)
    intake.health([{**GOOD, "name": "disk /a", "kind": "", "state": "healthy", "text": "well"}], "n000", CLOCK)
    intake.begin(2, 8, frozenset({"n000", "n001"}))
    (found,) = intake.found.of(2)
    assert (found.kind, found.role) == ("gpu-ecc", "context")


def test_a_new_controller_hears_it_again_as_of_its_attempt():
    intake = Intake()
    intake.begin(3, 8)
    intake.health([{**GOOD, "attempt": 3}, {**GOOD, "name": "old", "text": "as before", "attempt": 2}], "n000", CLOCK)
    assert [(found.text, found.role) for found in intake.found.of(3)] == [
        ("gpus: GPU 3: 1", "root"),
        ("old: as before", "context"),
    ]


def test_unknown_and_healthy_find_nothing_and_the_newest_word_stands(intake):
    well = {**GOOD, "state": "healthy", "kind": "", "text": "8 GPUs"}
    assert intake.health([well], "n000", CLOCK) == []  # that all is well is no news the first time
    blind = {**GOOD, "state": "unknown", "kind": "", "text": "no answer"}
    assert len(intake.health([blind], "n000", CLOCK)) == 1
    assert intake.health([blind], "n000", CLOCK) == []
    assert intake.nodes.told("n000", "unknown") == ("gpus: no answer",)
    assert len(intake.health([well], "n000", CLOCK)) == 1
    assert intake.nodes.told("n000", "unknown") == ()
    assert intake.found.of(1) == ()


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        [],
        ["x"],
        [GOOD] * 33,
        [{**GOOD, "state": "fine"}],
        [{**GOOD, "kind": ""}],
        [{**GOOD, "name": ""}],
        [{**GOOD, "text": None}],
        [{**GOOD, "when": float("nan")}],
        [{**GOOD, "attempt": -1}],
        [{**GOOD, "attempt": True}],
    ],
)
def test_what_makes_no_sense_is_counted_and_changes_nothing(intake, raw):
    assert read_results(raw) is None
    assert intake.health(raw, "n000", CLOCK) == []
    assert (intake.ignored, intake.found.of(1), intake.nodes.by_node) == (1, (), {})


def test_an_end_before_its_beginning_moves_nothing_into_the_future():
    (one,) = read_results([{**GOOD, "before": 9e9}])
    found = finding(one, "n0", 1, 0.0, 0.0, holds_slot=True)
    assert (found.wall, found.offset_bound) == (1060.0, 0.0)


def test_a_node_is_given_so_many_names():
    nodes = Nodes()
    for n in range(3 * MOST):
        nodes.note("n0", read_results([{**GOOD, "name": f"check {n}"}]))
    assert len(nodes.by_node["n0"]) == MOST


class Peer:
    node, offset, offset_bound = "n000", 0.0, 1.0


def test_the_hub_wakes_for_what_is_wrong_and_not_for_what_is_unknown(tmp_path):
    events = []
    hub = Hub(str(tmp_path), "secret", lambda: 0.0, lambda: events.append(1), beat_s=1.0)
    hub.set_attempt(1, 1, 8, ["n000"])
    hub.take(Peer(), {"type": "health", "results": [{**GOOD, "state": "unknown", "kind": ""}]})
    assert (hub.changes, len(events)) == (1, 0)
    hub.take(Peer(), {"type": "health", "results": [GOOD]})
    assert (hub.changes, len(events)) == (2, 1)
    assert [found.kind for found in hub.findings(1)] == ["gpu-ecc"]
    hub.take(Peer(), {"type": "health", "results": "nonsense"})
    assert (hub.changes, len(events), hub.ignored_count) == (2, 1, 1)


def test_it_is_shown_under_the_node(intake):
    """`relight status --json` prints the view's nodes as they are."""
    intake.health([GOOD, {**GOOD, "name": "disk /a", "state": "unknown", "kind": "", "text": "x" * 200}], "n000", CLOCK)
    told = intake.nodes.told
    agent = NodeAgent(0.0, 1.0, 0.0, 0.0, 0, True, told("n000", "unhealthy"), told("n000", "unknown"))
    row = {name: NodeRow(name, NodeCondition.UP) for name in ("n000", "n001")}
    ports = SimpleNamespace(
        read=lambda: ClusterView(nodes=row, steps={}),
        connected=lambda: {"n000": agent},
        away=frozenset,
        changes=1,
        findings=lambda _attempt: (),
        marked=lambda _attempt, _name: False,
    )
    world = World(ports, ports, ports, ports, Layout(1, 1, 1, 1))
    world.refresh_cluster(1.0)
    view = world.view(
        History(), 1.0, SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
    )
    shown = VIEW.dump_python(view, mode="json")["nodes"]
    assert shown["n000"]["unhealthy"] == ["gpus: GPU 3: 1"]
    assert shown["n000"]["unchecked"] == [f"disk /a: {'x' * SHOWN}"]
    assert (shown["n001"]["unhealthy"], shown["n001"]["unchecked"]) == ([], [])
