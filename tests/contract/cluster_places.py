"""Four clusters behind one port, and what can be done to each: simulated, local, and Slurm read by commands or pyslurm."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import slurm_world
from slurm_world import SLEEP

from policies.layout import Layout
from slurm import localfiles
from slurm.cluster import Cluster, ClusterView, LaunchSpec
from slurm.local import LocalCluster
from supervisor.bench import nodes
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.world.cluster import SimCluster
from supervisor.bench.world.given import Given
from supervisor.bench.world.world import SimWorld


class Place:
    """A cluster of three nodes. What each one has to have is listed here; what it can't do raises NotImplementedError."""

    cluster: Cluster
    names: tuple[str, ...]
    run_dir = "/nonexistent/run"

    def view(self) -> ClusterView:
        view = self.cluster.read()
        assert isinstance(view, ClusterView), view
        return view

    def spec(self, name: str, epoch: int = 1, hosts: tuple[str, ...] = ()) -> LaunchSpec:
        return LaunchSpec(name, epoch, hosts or self.names, SLEEP, {}, self.run_dir, f"{self.run_dir}/{name}.out")

    def until(self, true_of: Callable[[ClusterView], bool]) -> ClusterView:
        """The first view of which it is true. Fails when that takes too long."""
        raise NotImplementedError

    def settle(self) -> None:
        """Whatever was asked for has come to its nodes."""

    def tasks(self, step: str) -> Mapping[str, int]:
        """How many tasks of it really run, by node, whatever the port says."""
        raise NotImplementedError

    def barred_with(self, node: str) -> str:
        """The key of our bar; empty where there is none."""
        raise NotImplementedError

    def drain(self, node: str) -> None:
        """Somebody else wants it back."""
        raise NotImplementedError

    def crash(self, node: str) -> None:
        raise NotImplementedError

    def hang(self, node: str) -> None:
        raise NotImplementedError

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody answers for the cluster."""
        raise NotImplementedError
        yield

    def close(self) -> None:
        """Nothing of it is left."""


class SimulatedPlace(Place):
    """Machines in a story; time goes by while somebody waits."""

    def __init__(self, kind: type[SimCluster] = SimCluster) -> None:
        self.world = SimWorld(Given(layout=Layout(1, 1, 3, 1), spares=0), 1)
        if kind is not SimCluster:  # a plant
            self.world.cluster.__class__ = kind
        self.cluster = self.sim = self.world.cluster
        self.names = tuple(self.sim.nodes)

    def until(self, true_of):
        until = self.world.time.now + 120
        while not true_of(view := self.view()):
            assert self.world.time.step(until), f"not seen: {view}"
        return view

    def settle(self):
        self.world.run_until(self.world.time.now + 10)

    def tasks(self, step):
        # How often each attempt was begun is the story's own truth.
        begun = sum(name == step for _, _, _, name in self.world.training.truth.launches)
        one = next((a for a in self.world.training.attempts.values() if a.name == step), None)
        return {node: begun if one is not None and one.alive.get(node) else 0 for node in self.names}

    def barred_with(self, node):
        one = self.sim.nodes[node]
        return one.reason if one.drained_by == "relight" else ""

    def drain(self, node):
        self.world.drain_node(node)

    def crash(self, node):
        self.world.lose_node(node)

    def hang(self, node):
        self.world.freeze_node(node)

    @contextmanager
    def away(self):
        self.sim.away_until = math.inf
        yield
        self.sim.away_until = 0.0


class LocalPlace(Place):
    """Daemons on this machine."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = str(run_dir)
        self.names = ("n000", "n001", "n002")
        self.cluster = self.local = LocalCluster(self.run_dir, self.names)
        self.local.boot()

    until = slurm_world.World.until

    def settle(self):
        for node in self.names:  # orders are heard in order: what came before the ping was heard
            self.cluster.probe(node, slurm_world.WAIT_S)

    def tasks(self, step):
        files = {node: localfiles.read_node(self.run_dir, node) for node in self.names}
        rows = {node: file.steps.get(step) for node, file in files.items() if file is not None}
        return {node: 0 if row is None or not row.running else len(row.tasks) for node, row in rows.items()}

    def barred_with(self, node):
        return _key(self.run_dir, node)

    def crash(self, node):
        nodes.kill_node(self.run_dir, node)

    def hang(self, node):
        nodes.freeze_node(self.run_dir, node)

    @contextmanager
    def away(self):
        nodes.freeze_node(self.run_dir, "n000")  # else it would write its file again
        path = Path(localfiles.node_path(self.run_dir, "n000"))
        whole = path.read_bytes()
        path.write_bytes(whole[:20])
        yield
        path.write_bytes(whole)
        nodes.thaw_node(self.run_dir, "n000")

    def close(self):
        self.cluster.release(1 << 30)
        self.local.close()


class SlurmPlace(Place):
    """One job of the test cluster."""

    def __init__(self, bed: SlurmBed, run_dir: Path, pyslurm: str) -> None:
        self.run_dir = str(run_dir)
        self.world = slurm_world.World(bed, run_dir, pyslurm=pyslurm)
        self.names = tuple(self.world.nodes)
        self.cluster = self.world.cluster

    def until(self, true_of):
        return self.world.until(true_of, 90.0)

    def tasks(self, step):  # noqa: ARG002  a promise is held against one step at a time
        return {node: len(self.world.tasks(node)) for node in self.names if node in self.world.bed._nodes}

    def barred_with(self, node):
        """Both the note and the drain, or neither."""
        key = _key(self.run_dir, node)
        words = ("sinfo", "-h", "-N", "-n", node, "-O", "StateComplete:|,Reason:|")
        state, reason = self.world.bed.run(*words).strip().split("|")[:2]
        assert (reason if "drain" in state else "") == key
        return key

    def drain(self, node):
        self.world.bed.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=memory to be changed")

    def crash(self, node):
        self.world.bed.crash_node(node)

    def hang(self, node):
        self.world.bed.hang_node(node)

    @contextmanager
    def away(self):
        self.world.bed.stop_controller()
        try:
            yield
        finally:
            self.world.bed.start_controller()

    def close(self):
        self.world.close()


def _key(run_dir: str, node: str) -> str:
    path = Path(run_dir, f"nodes/{node}/bar.json")
    return str(json.loads(path.read_bytes())["key"]) if path.exists() else ""
