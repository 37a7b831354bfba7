"""Nodes whose agent is away are asked for a sign of life: the cluster may take a minute to call one lost."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from builders import training

from policies.facts import AttemptView, NodeState, RankExit
from policies.history import History
from policies.layout import Layout
from slurm.cluster import ClusterView, NodeCondition, NodeRow, StepRow
from supervisor.observe.world import PROBES_MAX, World

NAMES = tuple(f"n{i:03d}" for i in range(8))


class Ports(SimpleNamespace):
    """Cluster, agents and files at once. `dead` do not answer a probe."""

    def __init__(self, away=(), dead=(), conditions=None):
        rows = {name: NodeRow(name, (conditions or {}).get(name, NodeCondition.UP)) for name in NAMES}
        self.asked = []
        super().__init__(
            read=lambda: ClusterView(nodes=rows, steps={}),
            connected=dict,
            away=lambda: frozenset(away),
            changes=1,
            findings=lambda _attempt: (),
            marked=lambda _attempt, _name: False,
            dead=frozenset(dead),
        )

    def probe(self, node, deadline_s):  # noqa: ARG002
        self.asked.append(node)
        return node not in self.dead

    def states(self):
        world = World(self, self, self, self, Layout(1, 1, 1, 1))
        world.refresh_cluster(1.0)
        nodes = world.view(
            History(), 1.0, SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
        ).nodes
        return {name for name, node in nodes.items() if node.state is not NodeState.UP}


def test_a_node_whose_agent_has_left_and_that_does_not_answer_is_silent():
    ports = Ports(away=("n003", "n004"), dead=("n003",))
    assert ports.states() == {"n003"}
    assert sorted(ports.asked) == ["n003", "n004"]


def test_who_has_an_agent_is_not_asked():
    ports = Ports(dead=("n003",))
    assert ports.states() == set()
    assert ports.asked == []


@pytest.mark.parametrize("extra", [0, 1])
def test_of_many_the_eye_is_blind_and_nobody_is_called_silent(extra):
    away = NAMES[: PROBES_MAX + extra]
    ports = Ports(away=away, dead=away)
    assert ports.states() == (set() if extra else set(away))


def test_a_late_beat_is_no_silent_node():
    silent = dict.fromkeys(("n001", "n002"), NodeCondition.SILENT)
    assert Ports(dead=("n002",), conditions=silent).states() == {"n002"}


def test_a_node_that_the_cluster_has_not_heard_of_yet_is_asked_too():
    unheard = dict.fromkeys(("n001", "n002"), NodeCondition.UNKNOWN)
    ports = Ports(away=("n001", "n002"), dead=("n002",), conditions=unheard)
    assert ports.states() == {"n001", "n002"}
    assert sorted(ports.asked) == ["n001", "n002"]


def test_what_the_cluster_calls_lost_is_not_asked():
    ports = Ports(away=("n001",), conditions={"n001": NodeCondition.DOWN})
    assert ports.states() == {"n001"}
    assert ports.asked == []


@pytest.mark.parametrize(
    ("whole", "ended", "running"), [(True, (0, 1, 2), False), (True, (0, 1), True), (False, (0, 1, 2), True)]
)
def test_of_a_step_that_is_told_as_a_whole_the_ends_of_ranks_count(whole, ended, running):
    """With a lost node in it Slurm names all nodes of a step until it drops that one."""
    slots = NAMES[:4]
    row = StepRow("run.a0001.e1", running=True, running_on=frozenset(slots[:3]), known_on=frozenset(slots), whole=whole)
    ports = Ports(conditions={NAMES[3]: NodeCondition.DOWN})
    told = ports.read().nodes
    ports.read = lambda: ClusterView(nodes=told, steps={row.name: row})
    exits = tuple(RankExit(rank, slots[rank], 1, 5.0, code=1) for rank in ended)
    ports.progress = lambda number, _now: replace(AttemptView(number, running=True), exits=exits)
    ports.has_exits = lambda _number: True
    world = World(ports, ports, ports, ports, Layout(1, 1, 4, 1))
    world.refresh_cluster(1.0)
    scene = training()
    history = replace(scene.history, attempts=(replace(scene.history.attempts[0], slots=slots),))
    done = SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
    assert (1 in world.view(history, 2.0, done).steps_running) is running


@pytest.mark.parametrize(("agent", "gone", "running"), [(True, 1, False), (True, 0, True), (False, 1, True)])
def test_where_an_agent_has_seen_the_last_of_an_attempt_nothing_of_it_runs(agent, gone, running):
    """Slurm lists a node whose slurmstepd is gone for good; an agent that is away says nothing of now."""
    row = StepRow("run.a0001.e1", running=True, running_on=frozenset(NAMES[:1]), known_on=frozenset(NAMES[:1]))
    ports = Ports()
    told = ports.read().nodes
    ports.read = lambda: ClusterView(nodes=told, steps={row.name: row})
    seen = SimpleNamespace(
        told=agent, last_beat=1.0, gone_attempt=gone, unhealthy=(), unchecked=(), checked=None, since=0.0
    )
    ports.connected = lambda: {NAMES[0]: seen}
    ports.progress = lambda number, _now: AttemptView(number, running=True)
    ports.has_exits = lambda _number: True
    world = World(ports, ports, ports, ports, Layout(1, 1, 1, 1))
    world.refresh_cluster(1.0)
    scene = training()
    history = replace(scene.history, attempts=(replace(scene.history.attempts[0], slots=NAMES[:1]),))
    done = SimpleNamespace(capture=None, failures={}, delays={}, at_work=frozenset(), released=False)
    assert (1 in world.view(history, 2.0, done).steps_running) is running
