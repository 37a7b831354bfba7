"""What Slurm's commands say of one job: the reads that work with every Slurm, and the way to run any other command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slurm import parsing
from slurm.calls import Answer, call, hand_on
from slurm.cluster import NotKnown, Unreadable
from slurm.parsing import JobRow, ListedNode, ListedStep
from slurm.reading import understood, understood_job

NO_SUCH_JOB: Final = "Invalid job id specified"
"""What commands say of a job or a step that slurmctld does not know (22.05 to 26.05)."""


class Commands:
    """`slurm.reading.Source` over commands. Nothing is made of one that failed, was late or spoke nonsense."""

    def __init__(self, job: str, env: Mapping[str, str], call_s: float) -> None:
        """`call_s`: seconds that one command may take. Commands give up after 9 to 10 s when slurmctld is away."""
        self.number = job
        self.env = env
        self._call_s = call_s
        self._away = False
        self._switches: dict[str, str] | None = None

    def ask(
        self, *argv: str, deadline_s: float | None = None, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Answer:
        """Run one command, with `env` beside the usual."""
        return call(argv, self._call_s if deadline_s is None else deadline_s, {**self.env, **(env or {})}, cwd)

    def submit(self, *words: str, cwd: str, env: Mapping[str, str]) -> Answer:
        """sbatch, which hands its environment on to the job: `env` beside the usual, and nothing of ours."""
        return hand_on(("sbatch", *words), self._call_s, {**self.env, **env}, cwd)

    def doubt(self) -> None:
        """Somebody else had no answer from Slurm: the next read begins with a ping."""
        self._away = True

    def job(self) -> JobRow | Unreadable:
        """The job as it is now; NotKnown where Slurm has never heard of it, or has forgotten it."""
        told = self._told("squeue", "--noheader", "--states=all", f"--jobs={self.number}", "-o", parsing.JOB_FORMAT)
        if isinstance(told, Unreadable):
            return NotKnown(told.why) if NO_SUCH_JOB in told.why else told
        return understood_job("squeue", told, self.number)

    def steps(self) -> tuple[ListedStep, ...] | Unreadable:
        """The steps that Slurm lists. Of a job that it does not know it lists none: ask for the job first."""
        told = self._told("squeue", "--noheader", "--steps", f"--jobs={self.number}", "-O", parsing.STEP_FORMAT)
        return told if isinstance(told, Unreadable) else understood("squeue --steps", told, parsing.steps)

    def nodes(self, names: tuple[str, ...]) -> Mapping[str, ListedNode] | Unreadable:
        """These nodes as Slurm lists them."""
        if not names:
            return {}
        told = self._told("sinfo", "--noheader", "--Node", f"--nodes={','.join(names)}", "-O", parsing.NODE_FORMAT)
        return told if isinstance(told, Unreadable) else understood("sinfo", told, parsing.nodes)

    def switch(self, node: str) -> str | None:
        """The leaf switch of a node, where Slurm knows the topology. Asked once."""
        if self._switches is None:
            answer = self.ask("scontrol", "-o", "show", "topology")
            if answer.code is None:
                return None  # late: asked again at the next one
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
