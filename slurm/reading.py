"""One look at a job through Slurm's commands: the job, its steps and its nodes, or why they could not be read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from slurm import localfiles, parsing
from slurm.calls import Answer, call
from slurm.cluster import Unreadable
from slurm.once import write_once
from slurm.parsing import JobRow, ListedNode, ListedStep
from slurm.states import Phase


@dataclass(frozen=True, slots=True)
class Listing:
    """What Slurm said. `allocation`: the nodes that the job began with, also those that have left it since."""

    job: JobRow
    allocation: tuple[str, ...]
    steps: tuple[ListedStep, ...]
    nodes: Mapping[str, ListedNode]


class Reader:
    """Asks Slurm about one job. Nothing is made of a command that failed, was late or spoke nonsense."""

    def __init__(self, run_dir: str, job: str, env: Mapping[str, str], call_s: float) -> None:
        """`call_s`: seconds that one command may take. Commands give up after 9 to 10 s when slurmctld is away."""
        self._run_dir = run_dir
        self._job = job
        self._env = env
        self._call_s = call_s
        self._away = False
        self._switches: dict[str, str] | None = None
        self._allocations: dict[str, tuple[str, ...]] = {}

    def ask(self, *argv: str, deadline_s: float | None = None) -> Answer:
        """Run one command. One that can't even be started has failed like any other."""
        try:
            return call(argv, self._call_s if deadline_s is None else deadline_s, self._env)
        except OSError as error:
            return Answer(127, "", str(error))

    def job(self) -> JobRow | Unreadable:
        """The job as it is now."""
        told = self._told("squeue", "--noheader", "--states=all", f"--jobs={self._job}", "-o", parsing.JOB_FORMAT)
        if isinstance(told, Unreadable):
            return told
        try:
            job = parsing.job(told, self._job)
        except ValueError as error:
            return Unreadable(f"squeue: {error}")
        if job is None:
            return Unreadable(f"job {self._job} is not known to Slurm")
        if job.phase is Phase.UNKNOWN:
            return Unreadable(f"job {self._job} is in a state that is not known: {job.state}")
        return job

    def look(self) -> Listing | Unreadable:
        """Job, steps and nodes. A job that is not running has neither steps nor nodes."""
        job = self.job()
        if isinstance(job, Unreadable):
            return job
        try:
            allocation = self._allocation(job)
        except (OSError, ValueError) as error:
            return Unreadable(str(error))
        if job.phase in {Phase.WAITING, Phase.ENDED}:
            return Listing(job, allocation, (), {})
        steps = self.steps()
        if isinstance(steps, Unreadable):
            return steps
        nodes = self.nodes(allocation)
        return nodes if isinstance(nodes, Unreadable) else Listing(job, allocation, steps, nodes)

    def steps(self) -> tuple[ListedStep, ...] | Unreadable:
        """The steps that Slurm lists. Of a job that it does not know it lists none: ask for the job first."""
        told = self._told("squeue", "--noheader", "--steps", f"--jobs={self._job}", "-O", parsing.STEP_FORMAT)
        if isinstance(told, Unreadable):
            return told
        try:
            return parsing.steps(told)
        except ValueError as error:
            return Unreadable(f"squeue --steps: {error}")

    def nodes(self, names: tuple[str, ...]) -> dict[str, ListedNode] | Unreadable:
        """These nodes as Slurm lists them."""
        if not names:
            return {}
        told = self._told("sinfo", "--noheader", "--Node", f"--nodes={','.join(names)}", "-O", parsing.NODE_FORMAT)
        if isinstance(told, Unreadable):
            return told
        try:
            return parsing.nodes(told)
        except ValueError as error:
            return Unreadable(f"sinfo: {error}")

    def switch(self, node: str) -> str | None:
        """The leaf switch of a node, where Slurm knows the topology. Asked once."""
        if self._switches is None:
            answer = self.ask("scontrol", "-o", "show", "topology")
            try:
                self._switches = parsing.switches(answer.out) if answer.ok else {}
            except ValueError:
                self._switches = {}
        return self._switches.get(node)

    def _told(self, *argv: str) -> str | Unreadable:
        """What a command printed. After one that failed a ping comes first: it tells in 0.1 s that slurmctld is away."""
        if self._away and not (ping := self.ask("scontrol", "ping")).ok:
            return Unreadable(ping.why("scontrol ping"))
        answer = self.ask(*argv)
        self._away = not answer.ok
        return answer.out if answer.ok else Unreadable(answer.why(argv[0]))

    def _allocation(self, job: JobRow) -> tuple[str, ...]:
        """The nodes that this start of the job began with. A node that fails leaves the job's own list for good.

        The first list that is read is kept in a file, so that a controller that comes later knows who is missing.
        """
        if job.phase is Phase.WAITING or not job.start:
            return ()
        if job.start not in self._allocations:
            path = f"{self._run_dir}/nodes/job-{self._job}-{job.start.replace(':', '')}.json"
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            if job.nodes:
                write_once(path, {"schema": 1, "nodes": list(job.nodes)})
            self._allocations[job.start] = _read_allocation(path)
        return self._allocations[job.start]


def _read_allocation(path: str) -> tuple[str, ...]:
    """Raises OSError, and ValueError for a file that is not of this form."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        document = json.loads(data)
        return tuple(localfiles.good_name(name) for name in {1: document["nodes"]}[document["schema"]])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error!r}") from error
