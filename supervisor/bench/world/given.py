"""What a story begins with: the machines, the job, the profile, the delays, the person. All of it may be drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from policies.layout import Layout
from policies.rules import Rules
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.cluster import Delays
from supervisor.bench.world.desk import Person
from supervisor.bench.world.job import Job
from supervisor.profiles import load_profile
from supervisor.settings import ClusterSettings, LayoutSettings, RunSettings, Settings

SMALL = Layout(2, 2, 2, 1)
LARGE = Layout(8, 8, 80, 8)
"""The reference run: 640 nodes of 8, 5,120 ranks."""


def profile(name: str = "auto", **changes: dict[str, Any] | Any) -> Rules:
    """A shipped profile with some of its thresholds changed; all fault classes cleared where it acts alone."""
    table = load_profile(name).model_dump(mode="json")
    if table["mode"] == "auto":
        table["cleared"] = load_profile("bench").model_dump(mode="json")["cleared"]
    for key, value in changes.items():
        table[key] = {**table[key], **value} if isinstance(value, dict) else value
    return Rules.model_validate(table)


@dataclass(frozen=True, slots=True)
class Given:
    """The beginning. `start`: time of day. Seconds unless said."""

    layout: Layout = SMALL
    spares: int = 2
    start: str = "09:00"
    job: Job = field(default_factory=Job)
    allocation: Allocation | None = None  # a Slurm job holds the nodes, and the controller watches from outside of it
    rules: Rules = field(default_factory=profile)
    delays: Delays = field(default_factory=Delays)
    person: Person = field(default_factory=Person)
    seal_s: float = 2.0
    view_s: float = 0.5
    reply_s: float = 0.2
    archive: bool = False  # one is configured
    copy_s: float = 20.0
    restore_s: float = 30.0
    reread_s: float = 5.0
    restart_s: float = 1.0  # until the parent has started another controller
    lag_s: float = 3.0
    skew_s: float = 0.0  # wall clocks of nodes differ by at most this
    store_lag_s: float = 0.0
    twice: bool = False  # each piece of work is done twice
    jumps: bool = True

    @property
    def settings(self) -> Settings:
        """As in relight.toml."""
        one = self.layout
        shape = LayoutSettings(tp=one.tp, pp=one.pp, dp=one.dp, ranks_per_node=one.ranks_per_node)
        spares = ClusterSettings(kind="local", spares=self.spares)
        return Settings(run=RunSettings(name="sim"), layout=shape, cluster=spares, command=("train",))

    @property
    def node_names(self) -> tuple[str, ...]:
        """Slots first, then spares."""
        return tuple(f"n{number:04d}" for number in range(self.layout.slots_needed + self.spares))

    @property
    def machine_names(self) -> tuple[str, ...]:
        """Those that a next job may get too."""
        pool = self.allocation.pool if self.allocation else 0
        return tuple(f"n{number:04d}" for number in range(len(self.node_names) + pool))

    def but(self, **changes: Any) -> Given:
        """The same but for this."""
        return replace(self, **changes)
