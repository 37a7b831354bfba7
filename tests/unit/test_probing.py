"""Nodes whose agent is away are asked for a sign of life: the cluster may take a minute to call one lost."""

from types import SimpleNamespace

import pytest

from policies.facts import History, NodeState
from policies.layout import Layout
from slurm.cluster import ClusterView, NodeCondition, NodeRow
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


def test_what_the_cluster_calls_lost_is_not_asked():
    ports = Ports(away=("n001",), conditions={"n001": NodeCondition.DOWN})
    assert ports.states() == {"n001"}
    assert ports.asked == []
