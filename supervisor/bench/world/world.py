"""The whole simulated world, and the controllers that live in it, one after the other or two at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from policies.history import History
from slurm.cluster import Cluster, LaunchSpec, NodeCondition
from supervisor.bench.world.agents import Agent
from supervisor.bench.world.allocation import SimJob
from supervisor.bench.world.archive import SimArchive
from supervisor.bench.world.cluster import SimCluster
from supervisor.bench.world.desk import SimDesk
from supervisor.bench.world.files import SimFiles
from supervisor.bench.world.given import Given
from supervisor.bench.world.machines import Node, Power
from supervisor.bench.world.points import Points
from supervisor.bench.world.shell import Life, SimEffects, Witness
from supervisor.bench.world.store import SimStore
from supervisor.bench.world.timeline import Timeline, clock
from supervisor.bench.world.training import Training
from supervisor.bench.world.workers import Workers
from supervisor.fold import fold_all
from supervisor.journal.entries import Stamped
from supervisor.journal.journal import read
from supervisor.journal.memory import MemorySegments
from supervisor.perform.effects import Ports
from supervisor.ports import Archive, Desk, Log, Store
from supervisor.rundir import RunDir

SWITCH_NODES = 32
SOON = 1.25
"""A job's end counts as near from so many times the longest notice on that the profile gives."""


class Watch:
    """Who looks on. This one says nothing; `supervisor/bench/checkers.py` holds the promises against what it sees."""

    def life_began(self, before: list[Stamped]) -> None:
        """A controller has read this from the journal."""

    def wrote(self, stamped: list[Stamped]) -> None:
        """A controller has written this."""

    def turned(self, life: Life) -> None:
        """A turn is over."""


class Plant:
    """Where a fault can be planted between the product and the world; this one plants none."""

    def cluster(self, cluster: SimCluster) -> Cluster:
        """The cluster that the controller gets."""
        return cluster

    def store(self, store: SimStore) -> Store:
        """The store that it gets."""
        return store

    def archive(self, archive: SimArchive) -> Archive:
        """The archive that it gets."""
        return archive

    def log(self, log: Witness) -> Log:
        """The journal that it gets."""
        return log

    def desk(self, desk: SimDesk) -> Desk:
        """The desk that it gets."""
        return desk

    def effects(self, ports: Ports, workers: Workers, looked: Callable[[str], None]) -> SimEffects:
        """The effects that it gets."""
        return SimEffects(ports, workers, looked)

    def recall(self, history: History) -> History:
        """What it remembers when it starts."""
        return history


class SimWorld:
    """Everything. The same `given`, `seed` and `points` give the same bytes."""

    def __init__(
        self,
        given: Given,
        seed: int = 0,
        points: Points | None = None,
        watch: Watch | None = None,
        plant: Plant | None = None,
    ) -> None:
        self.given = given
        self.rng = Random(seed)
        self.time = Timeline(clock(given.start))
        self.points = points or Points()
        self.watch = watch or Watch()
        self.plant = plant or Plant()
        self.disk = MemorySegments(self._writing)
        self.token = "sim-token"  # noqa: S105 - of no run
        self.run = RunDir("/nonexistent/run")
        nodes = tuple(
            Node(name, f"s{index // SWITCH_NODES}", round(self.rng.uniform(-given.skew_s, given.skew_s), 3))
            for index, name in enumerate(given.machine_names)
        )
        self.cluster = SimCluster(self.time, nodes, given.delays, self.points.passing, lambda: self._changed("cluster"))
        self.store = SimStore(
            self.time, given.layout, given.job.batch, self.points.passing, lambda: self._changed("store")
        )
        self.store.lag_s = given.store_lag_s
        self.archive = SimArchive(self.time, self.store, self.points.passing, lambda: self._changed("archive"))
        self.files = SimFiles(self.time, given.layout.world)
        self.training = Training(
            self.time,
            given.layout,
            given.job,
            cluster=self.cluster,
            store=self.store,
            files=self.files,
            changed=self._moved,
        )
        self.agents = {node.name: Agent(node, self.time, self.training) for node in nodes}
        self.training.agents = self.agents
        self.cluster.processes = self
        self._owed: set[str] = set()  # machines that stood still when their job was taken from them
        self.desk = SimDesk(self.time, self.rng, given.person, lambda: self._wake_after(0.5))
        self.drains: dict[str, tuple[str, str, float]] = {}  # node -> who, reason, when
        self.lives: list[Life] = []
        self.code: int | None = None
        self._lives_begun = 0
        if given.allocation is not None:
            rules, machines, changed = given.rules.job, self.cluster.nodes, self.cluster.job_changed
            near_s = SOON * max(rules.told_s, rules.leave_s)
            self.cluster.job = SimJob(
                self.time, given.allocation, machines, given.node_names, changed, self.take_away, near_s
            )

    # --- running ----------------------------------------------------------------------------------------------------

    def begin(self, *, again: bool = False) -> None:
        """Start a controller; `again`: in the place of one that died."""
        self._lives_begun += 1
        life = Life(self, self._lives_begun, again=again)
        self.lives.append(life)
        life.start()

    def run_until(self, when: float, stop: Callable[[], bool] | None = None) -> None:
        """Let things happen until then, or until `stop` says so."""
        while self.time.step(when):
            if stop is not None and stop():
                return

    @property
    def life(self) -> Life | None:
        """The controller that began last, while it lives."""
        return self.lives[-1] if self.lives and self.lives[-1].alive else None

    @property
    def history(self) -> History:
        """What the journal's bytes say."""
        return fold_all(History(), read(self.disk))

    def life_over(self, life: Life, *, again: bool) -> None:
        """A controller has ended."""
        for agent in self.agents.values():
            if agent.serves(life):
                agent.disconnect()
        if life.code is not None:
            self.code = life.code
        elif again:
            self.time.after(self.given.restart_s, lambda: self.begin(again=True))

    # --- between the controller and the world -----------------------------------------------------------------------

    def clock(self) -> float:
        """The controller's own clock."""
        return self.time.now

    def connect(self, agent: Agent, life: Life) -> None:
        """An agent has found the endpoint of this controller."""
        if life is self.life:
            agent.connect(life.hub, self.clock, self.token, life)

    def catch_up(self) -> None:
        """What would have come by now: rows of the steps done, and a beat of each agent."""
        self.training.advance()
        for agent in self.agents.values():
            agent.still_here()

    def version(self, part: str) -> int:
        """Changes whenever what is shown does."""
        if part == "archive":
            return self.archive.version
        return self.cluster.version if part == "cluster" else self.store.version

    def is_calm(self, attempt: int) -> bool:
        """Does this attempt go on by itself, with no save on its way?"""
        one = self.training.newest
        calm = self.given.jumps and one is not None and one.number == attempt and one.moving and not one.saving
        return calm and not (self.cluster.job is not None and self.cluster.job.is_near)

    def work_s(self, kind: str) -> float:
        """How long an effect's work takes, seconds."""
        given = self.given
        if kind in {"archive", "restore"}:
            return self.archive.lag() + (given.copy_s if kind == "archive" else given.restore_s)
        return {"seal": given.seal_s, "make-view": given.view_s, "scrub": given.reread_s}.get(kind, given.reply_s)

    def start_agent(self, node: str) -> None:
        """The cluster has started an agent."""
        self.cluster.nodes[node].agent = True
        self.agents[node].begin()
        life = self.life
        if life is not None:
            life.later(0.2, lambda: self.connect(self.agents[node], life))

    def launch(self, attempt: int, spec: LaunchSpec, on: frozenset[str]) -> None:
        """The cluster has started ranks of an attempt."""
        self.training.launch(attempt, spec, on)

    def take_away(self, nodes: Collection[str]) -> None:
        """The job ends: all that runs on these machines does. What stands still ends when it goes on."""
        here = {name for name in nodes if self.cluster.nodes[name].power is not Power.FROZEN}
        self._owed |= {*nodes} - here
        self.training.taken_away(here)
        for name in sorted(here):
            self.cluster.nodes[name].agent = False
            self.agents[name].die()

    def kill(self, attempt: int, node: str) -> None:
        """The cluster ends ranks."""
        self.training.kill(attempt, node)

    def _writing(self, put: Callable[[int], None], length: int) -> None:
        self.points.passing("journal before")
        if self.points.is_next():
            put(length // 2)
        self.points.passing("journal torn")
        put(length)
        self.points.passing("journal after")

    def _changed(self, part: str) -> None:
        life = self.life
        if life is not None:
            life.changed(part)

    def _moved(self) -> None:
        """The ranks are somewhere else than before: whoever watches them looks soon."""
        self._wake_after(0.05)

    def _wake_after(self, seconds: float) -> None:
        life = self.life
        if life is not None:
            life.later(seconds, life.wake)

    # --- what may happen --------------------------------------------------------------------------------------------

    def lose_node(self, name: str) -> None:
        """The machine is gone. The cluster shows it later."""
        node = self.cluster.nodes[name]
        node.power, node.hurt, node.agent = Power.DEAD, True, False
        self.training.node_gone(name, frozen=False)
        self.agents[name].die()
        delays = self.given.delays
        self.time.after(delays.silent_s, lambda: self._notice(name, Power.DEAD, NodeCondition.SILENT))
        self.time.after(delays.down_s, lambda: self._notice(name, Power.DEAD, NodeCondition.DOWN))

    def freeze_node(self, name: str) -> None:
        """The machine stands still: nothing answers, nothing ends."""
        node = self.cluster.nodes[name]
        if node.power is Power.UP:
            node.power, node.hurt = Power.FROZEN, True
            self.training.node_gone(name, frozen=True)
            self.time.after(self.given.delays.silent_s, lambda: self._notice(name, Power.FROZEN, NodeCondition.SILENT))

    def thaw_node(self, name: str) -> None:
        """It goes on where it stood."""
        node = self.cluster.nodes[name]
        if node.power is Power.FROZEN:
            node.power = Power.UP
            self.time.after(1.0, lambda: self._notice(name, Power.UP, NodeCondition.UP))
            if name in self._owed:
                self._owed.discard(name)
                self.take_away((name,))
            self.training.node_thaws(name)
            self.agents[name].thaw()
            self._moved()

    def return_node(self, name: str, *, bad: bool = False) -> None:
        """A machine that was lost is back, empty."""
        node = self.cluster.nodes[name]
        if node.power is Power.DEAD:
            node.power, node.bad = Power.UP, bad
            self.time.after(1.0, lambda: self._notice(name, Power.UP, NodeCondition.UP))

    def drain_node(self, name: str, who: str = "admin") -> None:
        """Somebody else drains it."""
        node = self.cluster.nodes[name]
        node.drained_by, node.reason = who, f"{who}: memory to be changed"
        self.drains[name] = (who, node.reason, self.time.now)
        self.cluster.note_change()

    def stranger(self) -> None:
        """Somebody who does not know the token connects as a node and says that its rank has died."""
        life, newest = self.life, self.training.newest
        if life is None or newest is None:
            return
        node = Node(newest.slots[0], "s0", agent=True)
        liar = Agent(node, self.time, self.training)
        liar.connect(life.hub, self.clock, "wrong", self)
        record = {"schema": 1, "rank": 0, "node": node.name, "attempt": newest.number, "pid": 1, "refused": None}
        ended = {"code": 1, "signal": None, "wall": self.time.now}
        liar.shout(
            {"type": "rank", "node": node.name, "m": {"k": "exit", "r": 0, "a": newest.number, **record, **ended}}
        )
        liar.disconnect()

    def _notice(self, name: str, power: Power, condition: NodeCondition) -> None:
        if self.cluster.nodes[name].power is power:
            if condition is NodeCondition.DOWN and self.cluster.job is not None:
                self.cluster.job.lost(name)
            self.cluster.condition(name, condition)

    def kill_controller(self) -> None:
        """Whatever it was doing."""
        life = self.life
        if life is not None:
            self.points.hit.append("killed by the story")
            life.die()

    def second_controller(self) -> None:
        """Another one is started while the first still runs: a lease was lost, a person was in a hurry."""
        self.begin()
