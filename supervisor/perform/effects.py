"""The only place where relight touches the world. Each effect is asked for; whether it happened is seen later.

What may take over 100 ms runs in a worker thread. An effect that fails outright is told by its key; a crash of the controller
between the intent and the effect is answered by asking again, so every effect here can be asked for twice.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Final, assert_never

from policies.facts import CaptureView, CheckpointPhase, RankStack
from policies.history import History
from policies.layout import Layout
from slurm.cluster import Cluster, LaunchSpec, Unreadable
from slurm.sockets import make_socket_dir
from supervisor import actions, launchers
from supervisor.actions import Action
from supervisor.checkpoints import megatron_command
from supervisor.errors import NotRestorable
from supervisor.ports import Agents, Archive, AttemptFiles, NoArchive, Store
from supervisor.rundir import RunDir
from supervisor.settings import Settings


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


WORDS_S = 1.0
"""An agent that has not told within this time what its logs say by now is not waited for; it reads them in milliseconds."""


_OF_MANY: Final = {"agent": "agents", "warm": "warm"}
"""What the step is called in which all nodes start theirs together."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the effects need. `sockets(run directory)` makes the folder of the agents' sockets."""

    run: RunDir
    settings: Settings
    layout: Layout
    cluster: Cluster
    store: Store
    agents: Agents
    files: AttemptFiles
    epoch: int
    capture_s: float
    free_port: Callable[[], int] = free_port
    sockets: Callable[[str], str] = make_socket_dir
    archive: Archive = field(default_factory=NoArchive)


class Effects:
    """Performs actions. `looked(part)` is called (in any thread) when a part of the world is worth another look.

    `lanes`: for what moves or reads a whole save, so that a seal or a recovery never waits for a free worker.
    """

    def __init__(
        self, ports: Ports, workers: Executor, looked: Callable[[str], None], lanes: Executor | None = None
    ) -> None:
        self._ports = ports
        self._workers = workers
        self._lanes = lanes or workers
        self._looked = looked
        self._wanted: list[actions.StartAgent] = []
        self._started: dict[str, int] = {}
        self._at_work: set[str] = set()
        self.failures: dict[str, str] = {}
        self.delays: dict[str, str] = {}
        self.capture: CaptureView | None = None
        self.released = False

    @property
    def at_work(self) -> frozenset[str]:
        """Keys of what is being done now."""
        return frozenset(self._at_work)

    def perform(self, action: Action, history: History) -> None:
        """Ask for one effect. Never raises for what the world does; that is told in `failures`."""
        ports = self._ports
        if actions.key(action) in self._at_work:
            return  # asked again while it is being done
        self.failures.pop(actions.key(action), None)
        match action:
            case actions.StartAgent():
                self._wanted.append(action)
            case actions.Check():
                ports.agents.check(action.node, action.incident)
            case actions.Capture():
                self._capture(action)
            case actions.Fence():
                ports.files.mark(action.attempt, "FENCED")
            case actions.AskStop():
                ports.files.mark(action.attempt, "STOP")
            case actions.Stop():
                epoch = next(a.epoch for a in history.attempts if a.number == action.attempt)
                name = _step_name(ports.settings.run.name, action.attempt, epoch)
                self._work(action, "cluster", lambda: ports.cluster.stop(name, ports.epoch))
                if history.intents[actions.key(action)].tries > 1:
                    ports.agents.end(action.attempt)  # what has no slurmstepd any more, Slurm itself can't end
            case actions.Begin():
                self._work(action, "store", lambda: [ports.store.begin(c) for c in action.checkpoints])
            case actions.Seal():
                self._work(action, "store", lambda: ports.store.seal(action.checkpoint))
            case actions.Abandon():
                self._work(action, "store", lambda: self._abandon(action.checkpoints))
            case actions.Retain():
                self._work(action, "store", lambda: ports.store.retain(action.keep, frozenset(action.protect)))
            case actions.Restore():
                self._work(action, "store", lambda: self._restore(action))
            case actions.Archive():
                self._work(action, "archive", lambda: self._archive(action))
            case actions.Scrub():
                self._work(action, "store", lambda: ports.store.scrub(action.checkpoint))
            case actions.Bar():
                why = next((i.reason.value for i in history.incidents if i.number == action.incident), "")
                self._work(action, "cluster", lambda: self._bar(action, why))
            case actions.Unbar():
                key = self._bar_key(action.incident)
                self._work(action, "cluster", lambda: ports.cluster.unbar(action.node, key))
            case actions.MakeView():
                self._work(action, "store", lambda: self._make_view(action))
            case actions.Launch():
                self._launch(action)
            case actions.NextJob():
                self._work(action, "cluster", lambda: ports.cluster.next_job(action.start, action.exclude, ports.epoch))
            case actions.Release():
                self._work(action, "released", lambda: ports.cluster.release(ports.epoch))
            case _:
                assert_never(action)

    def _work(self, action: Action, part: str, task: Callable[[], object]) -> None:
        lane = self._lanes if isinstance(action, actions.SLOW) else self._workers
        self._work_for((actions.key(action),), lane, part, task)

    def _work_for(self, keys: tuple[str, ...], lane: Executor, part: str, task: Callable[[], object]) -> None:
        """One task that does what these effects ask for."""
        self._at_work |= set(keys)

        def done(future: Future[object]) -> None:
            self._at_work.difference_update(keys)
            error = future.exception()
            if error is not None:
                for key in keys:
                    self.delays.pop(key, None)
                    self.failures[key] = str(error) or type(error).__name__
            elif part == "released":
                self.released = True
            self._looked(part)

        def safely() -> object:
            try:
                result = task()
            except NotRestorable as error:
                if error.not_yet:
                    self.delays |= dict.fromkeys(keys, str(error))
                    return None  # it will be asked for again; not yet is not broken
                raise
            for key in keys:
                self.delays.pop(key, None)
            return result

        lane.submit(safely).add_done_callback(done)

    def end_turn(self) -> None:
        """What one turn has asked for node by node is asked for together: 640 agents are one step, not 640."""
        wanted, self._wanted = tuple(self._wanted), []
        if wanted:
            nodes = tuple(one.node for one in wanted)
            keys = tuple(actions.key(one) for one in wanted)
            self._work_for(keys, self._workers, "cluster", lambda: self._start_agents(nodes))

    def _start_agents(self, nodes: tuple[str, ...]) -> None:
        """One that is missing later gets a step of its own. A node's old agent gives way to the new one."""
        run = self._ports.run
        for module in ("agent", "warm") if self._ports.settings.run.warm else ("agent",):
            if len(nodes) == 1:
                self._start(f"{module}.{nodes[0]}", nodes, module, run.path("nodes", nodes[0], f"{module}.log"))
            else:
                self._start(_OF_MANY[module], nodes, module, run.path("nodes", f"{_OF_MANY[module]}.log"))

    def _start(self, name: str, nodes: tuple[str, ...], module: str, output: str) -> None:
        ports = self._ports
        tries = self._started[name] = self._started.get(name, 0) + 1
        ports.cluster.launch(
            LaunchSpec(
                name=f"{ports.settings.run.name}.{name}.e{ports.epoch}.{tries}",
                epoch=ports.epoch,
                hosts=nodes,
                argv=(sys.executable, "-m", f"supervisor.agent.{module}", ports.run.root),
                env=dict(ports.settings.env),
                cwd=ports.settings.cwd or ports.run.root,
                output=output,
            )
        )

    def _restore(self, action: actions.Restore) -> None:
        """An archive that fails now is asked again; only one that says no has said something about the copy."""
        if _has(self._ports.store, action.checkpoint):
            return  # asked again before anybody has looked
        try:
            self._ports.archive.restore(action.checkpoint)
        except OSError as error:
            raise NotRestorable(str(error), not_yet=True) from error

    def _archive(self, action: actions.Archive) -> None:
        """The record first: it is kept though the copy may fail, and a copy that is there shows that it was kept."""
        ports, lost = self._ports, None
        if _has(ports.archive, action.checkpoint):
            return
        try:
            ports.archive.keep_record(ports.run.root)
        except OSError as error:
            lost = error
        ports.archive.copy(action.checkpoint)
        ports.archive.retain(ports.settings.archive.keep, frozenset(action.protect))
        if lost is not None:
            raise lost

    def _bar(self, action: actions.Bar, why: str) -> None:
        """Each node for itself: that one can't be drained keeps no other from it. Raises the first OSError."""
        failed = []
        for node in action.nodes:
            try:
                self._ports.cluster.bar(node, self._bar_key(action.incident), why)
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _bar_key(self, incident: int) -> str:
        """By which our own drain is known, and lifted again."""
        return f"relight {self._ports.settings.run.name} incident {incident}"

    def _make_view(self, action: actions.MakeView) -> None:
        """A view that another plan has left for this attempt (it was never launched) is taken away first."""
        store = self._ports.store
        standing = store.view_targets()
        if (
            not isinstance(standing, Unreadable)
            and standing.get(action.attempt, action.checkpoint) != action.checkpoint
        ):
            store.drop_view(action.attempt)
        try:
            store.make_view(action.attempt, action.checkpoint)
        except NotRestorable as error:
            if action.checkpoint and not error.not_yet:
                store.condemn(action.checkpoint, *error.reasons)
            raise

    def _abandon(self, checkpoints: tuple[str, ...]) -> None:
        for one in checkpoints:
            self._ports.store.abandon(one, "its attempt was stopped before the framework had finished it")

    def _capture(self, action: actions.Capture) -> None:
        """The agents first: what their logs say by now must be heard before anything is decided, let alone stopped."""
        ports = self._ports
        deadline_s = ports.capture_s if action.stacks else min(WORDS_S, ports.capture_s)
        ports.agents.capture(action.incident, action.attempt, deadline_s, stacks=action.stacks)

        def copy(unknown: int, stacks: tuple[RankStack, ...]) -> None:
            kept = ports.files.keep_evidence(action.incident, action.attempt)
            missing = unknown if action.stacks else max(0, ports.layout.world - kept)
            self.capture = CaptureView(action.incident, True, kept, missing, stacks)

        def captured(unknown: int) -> None:
            told = ports.agents.capture_state()
            stacks = told.stacks if told is not None and told.incident == action.incident else ()
            self._work(action, "capture", lambda: copy(unknown, stacks))

        ports.agents.when_captured(captured)

    def _launch(self, action: actions.Launch) -> None:
        """The map first, then the step. Asked twice, the map that stands is used again: same port, same name."""
        ports, run = self._ports, self._ports.run
        layout, settings = ports.layout, ports.settings
        hosts = tuple(node for node in action.slots for _ in range(layout.ranks_per_node))
        command = _command(settings, action.checkpoint)
        below = launchers.split(command)
        spec = {
            "schema": 1,
            "run": settings.run.name,
            "epoch": action.epoch,
            "attempt": action.attempt,
            "tp": layout.tp,
            "pp": layout.pp,
            "dp": layout.dp,
            "ranks_per_node": layout.ranks_per_node,
            "slots": list(action.slots),
            "master_addr": ports.cluster.address(hosts[0]),
            "master_port": ports.free_port(),
            "command": list(below.command if below else command),
            "launcher": list(below.launcher if below else ()),
            "cwd": settings.cwd,
            "env": dict(settings.env),
            "save_dir": ports.store.save_dir(action.attempt),
            "load_dir": ports.store.view_dir(action.attempt),
            "checkpoint": action.checkpoint or "",
            "warm": settings.run.warm,
            "reporter": layout.world - 1,
            "skip_samples": [list(span) for span in action.skip_samples],
            "agent_sockets": ports.sockets(run.root),
        }
        ports.files.write_map(action.attempt, spec, hosts)
        launch = LaunchSpec(
            name=_step_name(settings.run.name, action.attempt, action.epoch),
            epoch=ports.epoch,
            hosts=action.slots if below else hosts,
            argv=(
                sys.executable,
                "-I",
                "-S",
                _task("launcher_task" if below else "shim"),
                run.root,
                str(action.attempt),
            ),
            env=dict(settings.env),
            cwd=settings.cwd or run.root,
            output=run.attempt(action.attempt, "srun.err"),
        )
        self._work(action, "cluster", lambda: ports.cluster.launch(launch))


def _has(place: Store | Archive, checkpoint: str) -> bool:
    """Does it show this save as completed?"""
    seen = place.scan()
    return isinstance(seen, tuple) and any(c.id == checkpoint and c.phase is CheckpointPhase.COMPLETED for c in seen)


def _command(settings: Settings, checkpoint: str | None) -> tuple[str, ...]:
    """The command of one attempt, its placeholders not yet filled in."""
    if settings.checkpoints.framework != megatron_command.FRAMEWORK:
        return settings.command
    return megatron_command.for_attempt(settings.command, from_nothing=checkpoint is None)


def _step_name(run: str, attempt: int, epoch: int) -> str:
    """The cluster's name of an attempt: it carries the epoch of its intent."""
    return f"{run}.a{attempt:04d}.e{epoch}"


def _task(name: str) -> str:
    """What each task of an attempt runs: the shim of a rank, or the one task of a node."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent", f"{name}.py")
