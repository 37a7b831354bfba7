"""What `slurm.cluster.Cluster` promises, held against everything that implements it; and plants that break a promise."""

import pytest
from cluster_places import LocalPlace, SimulatedPlace, SlurmPlace
from slurm_world import python_of

from slurm.cluster import ClusterView, NodeCondition, StepRow, Unreadable
from supervisor.bench.world.cluster import SimCluster

STEP = "demo.a0001.e1"
NEXT = "demo.a0002.e1"
KEY = "relight demo incident 3"
SLURM = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]


@pytest.fixture(
    params=["simulated", "local", pytest.param("commands", marks=SLURM), pytest.param("pyslurm", marks=SLURM)]
)
def place(request, tmp_path):
    kind = request.param
    if kind == "simulated":
        made = SimulatedPlace()
    elif kind == "local":
        made = LocalPlace(tmp_path)
    else:
        bed = request.getfixturevalue("bed")
        made = SlurmPlace(bed, tmp_path, python_of(kind, bed))
    yield made
    made.close()


def conditions(view):
    return {row.condition for row in view.nodes.values()}


def running_on(view, step):
    return view.steps[step].running_on if step in view.steps else frozenset()


def begin(place, step=STEP, epoch=1):
    place.cluster.launch(place.spec(step, epoch))
    place.until(lambda view: running_on(view, step) == set(place.names) and all(place.tasks(step).values()))


def shows_its_nodes(place):
    view = place.view()
    assert set(view.nodes) == set(place.names)
    assert conditions(view) == {NodeCondition.UP}
    assert view.steps == {}
    assert all(place.cluster.address(node) for node in place.names)
    assert all(place.cluster.probe(node, 40.0) for node in place.names)


def starts_a_name_once(place):
    begin(place)
    for _ in range(2):
        place.cluster.launch(place.spec(STEP))
    place.settle()
    assert set(place.tasks(STEP).values()) == {1}
    place.cluster.stop(STEP, 1)
    place.until(lambda view: not running_on(view, STEP) and not any(place.tasks(STEP).values()))
    place.cluster.launch(place.spec(STEP))
    place.settle()
    assert not running_on(place.view(), STEP)
    assert not any(place.tasks(STEP).values())
    begin(place, NEXT)


def holds_a_stop_that_overtakes_the_launch(place):
    place.cluster.stop(STEP, 1)
    place.settle()
    place.cluster.launch(place.spec(STEP))
    place.settle()
    assert not running_on(place.view(), STEP)
    assert not any(place.tasks(STEP).values())


def ignores_an_older_controller(place):
    begin(place, epoch=5)
    place.cluster.stop(STEP, 4)
    place.cluster.launch(place.spec("demo.a0002.e4", 4))
    place.settle()
    view = place.view()
    assert running_on(view, STEP) == set(place.names)
    assert not running_on(view, "demo.a0002.e4")
    assert set(place.tasks(STEP).values()) == {1}


def bars_by_key(place):
    node = place.names[1]
    place.cluster.bar(node, KEY)
    place.cluster.bar(node, "relight demo incident 4")
    assert place.barred_with(node) == KEY
    assert place.view().nodes[node].condition is NodeCondition.UP  # our own bar says nothing about the node
    place.cluster.unbar(node, "relight demo incident 4")
    assert place.barred_with(node) == KEY
    place.cluster.unbar(node, KEY)
    assert place.barred_with(node) == ""
    place.cluster.unbar(node, KEY)  # nothing to lift is no error
    place.until(lambda view: view.nodes[node].condition is NodeCondition.UP)  # 25.11 asks the node anew


def leaves_the_drain_of_somebody_else(place):
    node = place.names[1]
    try:
        place.drain(node)
    except NotImplementedError:
        pytest.skip("nobody else uses a local cluster")
    for act in (place.cluster.bar, place.cluster.unbar):
        act(node, KEY)
        row = place.view().nodes[node]
        assert row.condition is NodeCondition.DRAINED
        assert "memory to be changed" in row.reason


def refuses_a_host_that_is_none(place):
    with pytest.raises(ValueError, match="n999"):
        place.cluster.launch(place.spec(STEP, hosts=(place.names[0], "n999")))
    place.settle()
    assert not any(place.tasks(STEP).values())
    begin(place)


def is_unreadable_and_never_empty(place):
    begin(place)
    with place.away():
        assert isinstance(place.cluster.read(), Unreadable)
        assert isinstance(place.cluster.read(), Unreadable)
    view = place.until(lambda view: conditions(view) == {NodeCondition.UP})
    assert running_on(view, STEP) == set(place.names)


def loses_a_node_and_no_other(place):
    begin(place)
    well, hung, crashed = place.names  # the first one is the batch host of a job
    place.crash(crashed)
    place.hang(hung)
    assert not place.cluster.probe(crashed, 1.0)
    assert not place.cluster.probe(hung, 1.0)
    assert place.cluster.probe(well, 40.0)
    view = place.until(lambda view: view.nodes[hung].condition is NodeCondition.SILENT)
    assert hung in running_on(view, STEP)  # who is silent may still be at it
    assert place.tasks(STEP)[well] == 1
    view = place.until(lambda view: view.nodes[crashed].condition is NodeCondition.DOWN)
    assert crashed not in running_on(view, STEP)
    assert well in running_on(view, STEP)
    assert view.nodes[well].condition is NodeCondition.UP
    assert place.tasks(STEP)[well] == 1


PROMISES = (
    shows_its_nodes,
    starts_a_name_once,
    holds_a_stop_that_overtakes_the_launch,
    ignores_an_older_controller,
    bars_by_key,
    leaves_the_drain_of_somebody_else,
    refuses_a_host_that_is_none,
    is_unreadable_and_never_empty,
    loses_a_node_and_no_other,
)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_cluster(promise, place):
    promise(place)


class Empty(SimCluster):
    def read(self):
        seen = super().read()
        return ClusterView({}, {}) if isinstance(seen, Unreadable) else seen


class Again(SimCluster):
    def launch(self, spec):
        self._killed.clear()
        if spec.name not in self.steps:
            self._taken.pop(spec.name, None)
        super().launch(spec)


class Obedient(SimCluster):
    def _hears(self, node, epoch):
        return super()._hears(node, max(epoch, self.nodes[node].epoch))


class Rude(SimCluster):
    def unbar(self, node, key):
        self.nodes[node].drained_by, self.nodes[node].reason = "relight", key
        super().unbar(node, key)


class Overwriting(SimCluster):
    def bar(self, node, key, why=""):
        self.nodes[node].drained_by = ""
        super().bar(node, key, why)


class Hasty(SimCluster):
    """What is silent counts as gone."""

    def read(self):
        seen = super().read()
        if isinstance(seen, Unreadable):
            return seen
        up = {name for name, row in seen.nodes.items() if row.condition is NodeCondition.UP}
        rows = {n: StepRow(n, bool(r.running_on & up), r.running_on & up, r.known_on) for n, r in seen.steps.items()}
        return ClusterView(seen.nodes, rows)


class Unaware(SimCluster):
    """A node that is gone looks fine."""

    def condition(self, node, condition):
        pass


class Sparing(SimCluster):
    def launch(self, spec):
        hosts = tuple(host for host in spec.hosts if host in self.nodes)
        super().launch(type(spec)(spec.name, spec.epoch, hosts, spec.argv, spec.env, spec.cwd, spec.output))


@pytest.mark.parametrize(
    ("plant", "promise"),
    [
        (Empty, is_unreadable_and_never_empty),
        (Again, starts_a_name_once),
        (Again, holds_a_stop_that_overtakes_the_launch),
        (Obedient, ignores_an_older_controller),
        (Rude, bars_by_key),
        (Rude, leaves_the_drain_of_somebody_else),
        (Overwriting, bars_by_key),
        (Overwriting, leaves_the_drain_of_somebody_else),
        (Hasty, loses_a_node_and_no_other),
        (Unaware, loses_a_node_and_no_other),
        (Sparing, refuses_a_host_that_is_none),
    ],
)
def test_a_cluster_that_breaks_the_promise_is_seen(plant, promise):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        promise(SimulatedPlace(plant))
