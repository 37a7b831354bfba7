"""The cluster port inside one Slurm job: srun, scancel and scontrol act; squeue and sinfo, or pyslurm (`native`), tell.

What is asked for is written down in the run directory first (`localfiles` orders, `launching` claims); what has become
of it is read from Slurm. Whoever takes over needs nothing but that directory.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from slurm import launching, localfiles, parsing
from slurm.asking import NO_SUCH_JOB, Commands
from slurm.barring import Bars
from slurm.calls import clean_environment
from slurm.cluster import ClusterView, LaunchSpec, NodeCondition, NodeRow, NotKnown, StepRow, Unreadable
from slurm.jobs import Following, Jobs
from slurm.parsing import JobRow, ListedStep
from slurm.reading import Listing, Reader, Source
from slurm.srun_words import NOTHING, SrunWords, Told
from slurm.states import Phase, node_condition

ELSEWHERE_S = 60.0
"""A srun that was started on another machine, and whose step is not listed yet, may still be at it for so long: it gives
up on a dead node after 11 s, on a hung one after 40 s (24.11 and 26.05), and waits 15 s for a slurmctld that comes back."""

JUST_NOW_S = 1.0
"""A launch that follows a look at once need not wait for another: three commands, 20 to 100 ms. What can have changed since
can also change while srun starts."""

_PROBE = "relight-probe"
_ORDERING = threading.Lock()  # an order on its way is a file named after this process
CLEAR_S: Final = 75.0
"""So long the steps of a job may take to end. A slurmstepd that has lost one below it in the tree of its step's nodes waits for
it: 60 s, and 3 s for each level (63 and 66 s measured with 9 nodes on 22.05.8). Where the job ends first, such a node is
drained after UnkillableStepTimeout (60 s by default, "Kill task failed"), and the next job does not get it.
"""
MARGIN_S: Final = 10.0
"""Left before the job's end for whatever comes after that. Chosen."""


class SlurmCommands:
    """`slurm.cluster.Cluster` for the nodes of one Slurm job. No method takes longer than a few times `call_s`."""

    def __init__(
        self,
        run_dir: str,
        job: str,
        *,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        drain: bool = True,
        drain_command: Sequence[str] = (),
        end_job: bool = False,
        following: Following = Following(),  # noqa: B008 - frozen
        call_s: float = 20.0,
        release_deadline_s: float = CLEAR_S,
        reads: Callable[[Commands], Source] | None = None,
    ) -> None:
        """`job` is SLURM_JOB_ID; `env` for the commands (ours); `options` more words for srun, such as `--cpu-bind=none`.

        `drain`: bar nodes in Slurm too, where this user may; `drain_command`: of the site, in place of scontrol. `end_job`: a
        release cancels the job, for a controller that lives outside it; one in its batch script ends it by ending.
        `following`: how a next job is had. `reads`: who tells of job, steps and nodes in place of the commands, such as
        `native.Native`. Raises ValueError for what is no job id.
        """
        if not (job.isascii() and job.isdigit()):
            raise ValueError(f"not a job id: {job!r}")
        self._run_dir = os.path.abspath(run_dir)
        self._job = job
        self._env = clean_environment(os.environ if env is None else env)
        self._options = tuple(options)
        self._end_job = end_job
        self._call_s = call_s
        self._release_deadline_s = release_deadline_s
        self._commands = Commands(job, self._env, call_s)
        self._source: Source = self._commands if reads is None else reads(self._commands)
        self._reader = Reader(self._run_dir, job, self._source)
        self._bars = Bars(self._run_dir, self._commands, drain=drain, site=drain_command)
        self._jobs = Jobs(self._run_dir, self._commands, following, self._end_steps)
        self._over: dict[str, StepRow] = {}  # steps that are over for good
        self._stopping: set[str] = set()
        self._words = SrunWords()
        self._daemons: dict[str, tuple[str, int]] = {}  # where the slurmd of a node listens
        self._addresses: dict[str, str] = {}

    @property
    def drain_refused(self) -> str | None:
        """Why the last node that was to be drained is not: this user may not, Slurm is away, or the site's command failed."""
        return self._bars.refused

    def job(self) -> JobRow | Unreadable:
        """The job itself: its state and the nodes that it still holds."""
        return self._source.job()

    def read(self) -> ClusterView | Unreadable:
        """Nodes and steps. A node that has left the job, or whose job is over, is DOWN: nothing of ours runs there."""
        listing = self._reader.look()
        if isinstance(listing, Unreadable):
            return listing
        self._addresses |= {row.name: row.address for row in listing.nodes.values()}
        nodes = {name: self._node(name, listing) for name in listing.allocation}
        try:
            steps = {name: self._step(name, listing, nodes) for name in self._names()}
        except (OSError, ValueError) as error:
            return Unreadable(str(error))  # a step whose files lie would be hidden
        shown = {name: row for name, row in steps.items() if row is not None}
        return ClusterView(nodes, shown, self._bars.refused or "", self._jobs.describe(listing.job))

    def launch(self, spec: LaunchSpec) -> None:
        """Write the order and start its srun, unless the name is taken; srun's words and the tasks' go to `output`.

        Raises ValueError when a host was never in the job, OSError when Slurm can't be asked or has lost a host.
        """
        if not self._admit(spec.epoch) or launching.read_claim(self._run_dir, spec.name) is not None:
            return
        listing = self._listing(JUST_NOW_S)
        self._check(spec.hosts, listing)  # first: an order that can't be carried out would spend the name
        with _ORDERING:
            localfiles.write_order(self._run_dir, spec)
        order = localfiles.read_order(self._run_dir, spec.name)
        self._check(order.hosts, listing)  # it may be somebody else's
        if any(step.name == spec.name for step in listing.steps):
            return
        argv = launching.command(self._job, order, self._options)
        launching.start(self._run_dir, self._job, order, argv, self._env, self._call_s)

    def stop(self, name: str, epoch: int) -> None:
        """Have Slurm kill the step everywhere. A name that has not started never will. Raises OSError.

        srun is left to tell of each node what has ended there; only where no step shows is it killed, for then it may
        be just about to make one.
        """
        if not self._admit(epoch):
            return
        claim = launching.forbid(self._run_dir, self._job, name)
        self._stopping.add(name)
        with suppress(OSError, ValueError):  # what can't be read is no reason not to stop it
            self._words_of(name)  # the last that is not of the stop
        self._words.close(name)
        if not claim.started:
            return
        if self._cancel(name):
            return
        launching.end(self._run_dir, name, claim, self._call_s)
        self._cancel(name)

    def bar(self, node: str, key: str, why: str = "") -> None:
        """Our own note, and a drain with our key as its reason unless somebody has drained it. Raises OSError."""
        self._bars.bar(node, key, why)

    def unbar(self, node: str, key: str) -> None:
        """Lift our note and our drain, found by the key. Raises OSError."""
        self._bars.unbar(node, key)

    def probe(self, node: str, deadline_s: float) -> bool:
        """Does slurmd take a connection, and then run `true` in time? A hung node takes connections and does nothing."""
        until = time.monotonic() + deadline_s
        address = self._daemon(node, deadline_s)
        if address is None:
            return False
        try:
            socket.create_connection(address, max(0.01, until - time.monotonic())).close()
        except OSError:
            return False
        where = (f"--jobid={self._job}", f"--nodelist={node}", "--ntasks=1", "--overlap", "--gres=none")
        how = (f"--job-name={_PROBE}", "--input=none", "--output=none", "--chdir=/")
        return self._commands.ask("srun", *where, *how, "true", deadline_s=max(0.01, until - time.monotonic())).ok

    def address(self, node: str) -> str:
        """NodeAddr of the node, as sinfo has it."""
        return self._addresses.get(node, node)

    def next_job(self, start: str, exclude: Sequence[str], epoch: int) -> None:
        """Have the run's next job begin when this start of ours has ended, without these nodes. Raises OSError.

        Before it is requeued every step of ours is ended, as in a release.
        """
        if not self._admit(epoch):
            return
        job = self._commands.job()  # before something is asked for, in its own words
        if isinstance(job, Unreadable):
            raise OSError(job.why)
        self._jobs.next_job(job, start, [localfiles.good_name(node) for node in exclude])

    def release(self, epoch: int) -> None:
        """Cancel every step of ours and end every srun; with `end_job` the job too. Raises OSError.

        Waits until none is listed, for the deadline at most; a step on a hung node stays listed until Slurm drops it.
        """
        if not self._admit(epoch):
            return
        self._end_steps()
        if self._end_job:
            answer = self._commands.ask("scancel", self._job)
            job = self.job()
            over = isinstance(job, NotKnown) or (isinstance(job, JobRow) and job.phase is Phase.ENDED)
            if not answer.ok and not over:
                raise OSError(answer.why("scancel"))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Slurm gives no hints; it is looked at again and again."""

    # --- inside ---

    def _admit(self, epoch: int) -> bool:
        """Is nobody with a higher epoch here? Whoever has been is noted by a file of its own, so no two can clash."""
        folder = f"{self._run_dir}/nodes/epochs"
        os.makedirs(folder, mode=0o700, exist_ok=True)
        highest = max((int(name) for name in os.listdir(folder) if name.isdigit()), default=0)
        if epoch > highest:
            with suppress(FileExistsError), open(f"{folder}/{epoch:08d}", "x", encoding="ascii"):
                pass
        return epoch >= highest

    def _check(self, hosts: Sequence[str], listing: Listing) -> None:
        """May a step be started on these nodes? Raises ValueError, OSError as `launch`."""
        unknown = set(hosts) - set(listing.allocation)
        if unknown:
            raise ValueError(f"no such node in job {self._job}: {', '.join(sorted(unknown))}")
        gone = set(hosts) - set(listing.job.nodes)
        if listing.job.phase is not Phase.RUNNING or gone:
            # srun would fail and the name be spent; whoever asks finds out from the view and plans anew.
            missing = f", without {', '.join(sorted(gone))}" if gone else ""
            raise OSError(f"job {self._job} is {listing.job.state}{missing}")

    def _listing(self, within_s: float) -> Listing:
        listing = self._reader.look(within_s)
        if isinstance(listing, Unreadable):
            raise OSError(listing.why)
        return listing

    def _names(self) -> list[str]:
        """Every step that was ever asked for or forbidden."""
        try:
            files = os.listdir(f"{self._run_dir}/nodes/orders")
        except FileNotFoundError:
            return []
        ends = (".json", ".claim")
        return sorted({file.removesuffix(end) for file in files for end in ends if file.endswith(end)})

    def _cancel(self, *names: str) -> bool:
        """Ask Slurm to kill the listed steps of these names; False when none is left to be killed. Raises OSError.

        Without `--signal` slurmctld does it and answers at once (0.03 s); with it scancel itself asks each node, and
        waits 10 s for a hung one (22.05).
        """
        ids = [step.id for step in self._steps() if step.name in names and not step.id.endswith("TBD")]
        if not ids:
            return False
        answer = self._commands.ask("scancel", *ids)
        # One that has just ended is an error to scancel. A step that lost two nodes may stay listed while slurmctld itself
        # does not know it any more (22.05): nothing is left to be killed then.
        unknown = answer.err.count(NO_SUCH_JOB) >= max(1, answer.err.count("error:"))
        if not answer.ok and not unknown and set(ids) & {step.id for step in self._steps()}:
            raise OSError(answer.why("scancel"))
        return not unknown

    def _end_steps(self) -> None:
        """End every step of ours, and every srun; wait until none is listed, but not until the job ends. Raises OSError."""
        names = self._names()
        claims = {name: launching.forbid(self._run_dir, self._job, name) for name in names}
        until = time.monotonic() + min(self._release_deadline_s, self._jobs.left_s() - MARGIN_S)
        pause = 0.1
        while self._cancel(*names, _PROBE) and time.monotonic() < until:
            time.sleep(pause)  # Slurm announces nothing
            pause = min(2.0, 1.5 * pause)
        for name, claim in claims.items():
            if launching.lives(claim):
                launching.end(self._run_dir, name, claim, self._call_s)

    def _steps(self) -> tuple[ListedStep, ...]:
        steps = self._source.steps()
        if isinstance(steps, Unreadable):
            raise OSError(steps.why)
        return steps

    def _node(self, name: str, listing: Listing) -> NodeRow:
        job, row = listing.job, listing.nodes.get(name)
        if job.phase in {Phase.WAITING, Phase.ENDED}:
            return NodeRow(name, NodeCondition.DOWN, f"job {job.id} is {job.state}")
        switch = self._commands.switch(name)
        reason = row.reason if row is not None else ""
        if name not in job.nodes:
            return NodeRow(name, NodeCondition.DOWN, f"it has left job {job.id}; {reason}".rstrip("; "), switch)
        if row is None:
            return NodeRow(name, NodeCondition.UNKNOWN, "Slurm does not list it", switch)
        condition = node_condition(row.state, drained_by_us=self._bars.is_ours(row))
        if job.phase is Phase.ENDING and condition is NodeCondition.UP:
            return NodeRow(name, NodeCondition.DRAINED, f"job {job.id} is {job.state}", switch)
        said = "" if condition is NodeCondition.UP else reason or row.state
        return NodeRow(name, condition, said, switch)

    def _step(self, name: str, listing: Listing, nodes: Mapping[str, NodeRow]) -> StepRow | None:
        rows = [step for step in listing.steps if step.name == name and step.phase is not Phase.ENDED]
        if name in self._over and not rows:
            return self._over[name]
        claim = launching.read_claim(self._run_dir, name)
        if rows:
            self._over.pop(name, None)
            return self._listed(name, rows, nodes)
        if claim is None:
            return None  # asked for, and not started yet
        hosts = self._hosts(name, listing)
        ended = not claim.started or claim.job != self._job or listing.job.phase is Phase.ENDED
        ended = ended or launching.exit_code(self._run_dir, name) is not None
        at_it = launching.lives(claim) if claim.here else time.time() < claim.wall + ELSEWHERE_S
        if not ended and at_it:
            # srun is about to make the step: what is not listed yet is not gone.
            return StepRow(name, bool(on := self._within(hosts, nodes)), on, hosts)
        told = self._words_of(name)
        row = self._over[name] = StepRow(
            name, running=False, running_on=frozenset(), known_on=hosts, ends=told.ends, complaints=told.complaints
        )
        return row

    def _listed(self, name: str, rows: Sequence[ListedStep], nodes: Mapping[str, NodeRow]) -> StepRow:
        """A step that Slurm lists. It names all nodes of it until the last has ended, and srun knows which have."""
        order = localfiles.read_order(self._run_dir, name)
        hosts = frozenset(order.hosts)
        shown = frozenset[str]().union(*(row.nodes for row in rows))
        on = self._within(hosts & shown or hosts, nodes)  # a step that is still pending shows none
        unwell = any(nodes[host].condition is not NodeCondition.UP for host in hosts if host in nodes)
        if unwell or name in self._stopping:  # a node may be lost long before Slurm says so
            on -= parsing.ended_nodes(launching.said(order.output), order.hosts)
        told = self._words.of(order)
        return StepRow(name, bool(on), on, hosts, whole=unwell, ends=told.ends, complaints=told.complaints)

    def _words_of(self, name: str) -> Told:
        try:
            return self._words.of(localfiles.read_order(self._run_dir, name))
        except FileNotFoundError:
            return NOTHING  # forbidden before there was an order

    def _within(self, hosts: frozenset[str], nodes: Mapping[str, NodeRow]) -> frozenset[str]:
        """Without the nodes that are lost: what Slurm has dropped holds nothing that can be reached."""
        return frozenset(h for h in hosts if h in nodes and nodes[h].condition is not NodeCondition.DOWN)

    def _hosts(self, name: str, listing: Listing) -> frozenset[str]:
        """The nodes of an order; of a name that was forbidden before there was one, all of them."""
        try:
            return frozenset(localfiles.read_order(self._run_dir, name).hosts)
        except FileNotFoundError:
            return frozenset(listing.allocation)

    def _daemon(self, node: str, deadline_s: float) -> tuple[str, int] | None:
        if node not in self._daemons:
            answer = self._commands.ask(
                "scontrol", "-o", "show", "node", localfiles.good_name(node), deadline_s=deadline_s
            )
            found = parsing.address(answer.out) if answer.ok else None
            if found is None:
                return None
            self._daemons[node] = found
        return self._daemons[node]
