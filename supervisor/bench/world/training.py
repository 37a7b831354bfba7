"""The ranks of the training, moved as a group: one event for what all of them do, messages as each of them sends them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from policies.facts import Counters, Phase
from policies.layout import Layout
from slurm.cluster import LaunchSpec
from supervisor.bench.world.agents import Agent
from supervisor.bench.world.cluster import SimCluster
from supervisor.bench.world.files import SimFiles
from supervisor.bench.world.job import Curse, Job, loss_of
from supervisor.bench.world.machines import Node, Power
from supervisor.bench.world.store import Save, SimStore, digest_of, next_batch
from supervisor.bench.world.timeline import Moment, Timeline

TIMEOUT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4182, OpType=ALLREDUCE) ran for 600029 milliseconds before timing out."
)
RESET = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"


ROTTEN = "~"
"""Ends the state of an attempt that has loaded other bytes than were sealed."""
BEAT_S = 2.0
"""Agents beat so often; a phase that is over before the next beat is told by nobody but the reporter."""


@dataclass(slots=True)
class Attempt:
    """One launched attempt, as it really is. `alive`: node -> its living ranks; `step_at`: when `step` was done."""

    number: int
    name: str
    slots: tuple[str, ...]
    start: Counters
    state: str  # what stands for the weights that it goes on from
    checkpoint: str
    alive: dict[str, set[int]] = field(default_factory=dict)
    refused: bool = False
    phase: Phase = Phase.START_UP
    told_phase: Phase = Phase.START_UP  # as the last beats had it
    step: int = 0
    step_at: float = 0.0
    told: int = 0  # the last step whose row was sent
    moved_at: float = 0.0
    moving: bool = False
    loaded: bool = False
    behind: set[int] = field(default_factory=set)
    then: Moment | None = None
    resume: Callable[[], None] | None = None  # what a thaw goes on with
    saving: set[str] = field(default_factory=set)
    off: float = 0.0  # added to its losses
    slow: float = 1.0
    over: bool = False
    skipped: int = 0

    def whole(self, layout: Layout) -> bool:
        """Do all ranks live?"""
        return sum(len(ranks) for ranks in self.alive.values()) == layout.world


@dataclass(slots=True)
class Truth:
    """What has really been computed, for those who check."""

    computed: dict[int, int] = field(default_factory=dict)  # attempt -> updates
    furthest: int = 0
    launches: list[tuple[float, int, str, str]] = field(default_factory=list)  # when, attempt, checkpoint, step's name
    double: list[str] = field(default_factory=list)  # two attempts that could publish at once
    finished: bool = False


class Training:
    """Every attempt that was ever launched."""

    def __init__(
        self,
        time: Timeline,
        layout: Layout,
        job: Job,
        *,
        cluster: SimCluster,
        store: SimStore,
        files: SimFiles,
        changed: Callable[[], None],
    ) -> None:
        self.job = job
        self.attempts: dict[int, Attempt] = {}
        self.agents: dict[str, Agent] = {}
        self.curses: list[Curse] = []
        self.truth = Truth()
        self.heeds_fences = True
        self.never_written: set[int] = set()  # attempts whose saves never end
        self._time = time
        self._layout = layout
        self._cluster = cluster
        self._store = store
        self._files = files
        self._changed = changed

    # --- the cluster starts and ends ranks --------------------------------------------------------------------------

    def launch(self, number: int, spec: LaunchSpec, on: frozenset[str]) -> None:
        """The ranks of an attempt start on these of its machines; each asks first whether it may, then waits for all."""
        one = self.attempts.get(number) or self._new(number, spec)
        refused = self._files.why_refused(number)
        for slot, name in enumerate(one.slots):
            if name in on:
                one.alive[name] = set(self._layout.ranks_of_slot(slot))
        self._show(one)
        if refused is not None:
            one.refused = one.over = True
            for name in list(one.alive):
                self._end(one, name, code=94, refused=refused)
            return
        for name in (n for n in one.slots if n in on):
            for rank in one.alive[name]:
                self._say(name, {"k": "start", "r": rank, "a": number, "pid": 1000 + rank, "warm": False})
        for name in [n for n in one.slots if n in on and self._node(n).bad]:
            rank = min(one.alive[name])
            self.rank_dies(rank, signal=11, words=("CUDA error: unspecified launch failure",), attempt=number)
        one.moving = one.whole(self._layout) and not one.over
        self._go_on(one, self.job.start_s, lambda: self._load(one))

    def _new(self, number: int, spec: LaunchSpec) -> Attempt:
        slots = tuple(spec.hosts[:: self._layout.ranks_per_node])
        save = self._store.saves.get(self._store.views.get(number) or "")
        start = save.counters if save else Counters(0, 0, 0, 0, self.job.counters(0).lr)
        one = Attempt(number, spec.name, slots, start, save.state if save else "s0", save.id if save else "")
        one.step = one.told = start.step
        one.moved_at = self._time.now
        for old in self.attempts.values():
            left = [n for n, ranks in old.alive.items() if ranks and self._node(n).power is Power.UP]
            if left and self._files.why_refused(number) is None:
                self.truth.double.append(f"attempt {number} started while attempt {old.number} still ran on {left[0]}")
        self.truth.launches.append((self._time.now, number, one.checkpoint, spec.name))
        self.attempts[number] = one
        return one

    def kill(self, attempt: int, node: str) -> None:
        """SIGKILL to every rank of it on a node."""
        one = self.attempts.get(attempt)
        if one is not None and one.alive.get(node):
            self._halt(one)
            self._end(one, node, signal=9)

    def kill_older(self, node: str, attempt: int) -> None:
        """The agent ends what is left here of attempts before this one."""
        for one in self.attempts.values():
            if one.number < attempt and one.alive.get(node):
                self._halt(one)
                self._end(one, node, signal=9)

    def taken_away(self, nodes: Collection[str]) -> None:
        """The job ends: SIGTERM to every rank on these machines, and the rest goes with it."""
        for one in self.attempts.values():
            here = [name for name in one.alive if name in nodes]
            if here:
                self._halt(one)
                one.over = True
            for name in here:
                self._end(one, name, signal=15)

    def start_agent(self, node: str) -> None:
        """The cluster starts an agent."""
        self._node(node).agent = True
        self._changed()

    # --- what an agent sees -----------------------------------------------------------------------------------------

    def rows(self, node: str) -> list[list[Any]]:
        """The ranks of the newest attempt on a node."""
        one = self.attempts[max(self.attempts)] if self.attempts else None
        if one is None or one.refused or node not in one.alive:
            return []
        idle = round(max(0.0, self._time.now - one.moved_at), 3)
        last = one.step if one.loaded else -1
        return [
            [rank, one.number, one.phase.value, last - (rank in one.behind), idle] for rank in sorted(one.alive[node])
        ]

    def ranks_on(self, node: str, attempt: int) -> Iterable[int]:
        """The ranks that its map places there."""
        slots = self._files.maps.get(attempt, {}).get("slots", ())
        return [r for slot, name in enumerate(slots) if name == node for r in self._layout.ranks_of_slot(slot)]

    # --- going on ---------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Attempt | None:
        """The attempt that was launched last."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    def advance(self) -> None:
        """Tell the steps that have been done by now: the reporter's row of each."""
        one = self.newest
        if one is None or not one.loaded:
            return
        if one.moving and one.phase is Phase.STEP:
            step_s = self.job.step_s * one.slow
            while one.step_at + self._took(one, step_s) <= self._time.now + 1e-9:
                self._one_step(one, self._took(one, step_s))
        self._tell_rows(one)

    def _took(self, one: Attempt, step_s: float) -> float:
        return step_s + (self.job.first_step_s if one.step == one.start.step else 0.0)

    def _one_step(self, one: Attempt, seconds: float) -> None:
        one.step += 1
        one.step_at += seconds
        one.moved_at = one.step_at
        self.truth.computed[one.number] = self.truth.computed.get(one.number, 0) + 1
        self._tell_rows(one, seconds)

    def _tell_rows(self, one: Attempt, seconds: float | None = None) -> None:
        reporter = self._layout.world - 1
        node = one.slots[self._layout.slot_of(reporter)]
        while one.told < one.step:
            one.told += 1
            at = one.step_at - (one.step - one.told) * self.job.step_s
            row = self._row(one, one.told, seconds or self.job.step_s)
            if node in one.alive and reporter in one.alive[node]:
                self.agents[node].heard_at({"k": "step", "r": reporter, "a": one.number, **row}, at)

    def _row(self, one: Attempt, step: int, seconds: float) -> dict[str, Any]:
        before = one.start.samples + (step - 1 - one.start.step) * self.job.batch
        now = self.counters_at(one, step)
        window = self.job.window(before)
        nan = any(c.what == "nan" and c.step(one.start, one.slots, self.job.batch) == step for c in self.curses)
        loss = loss_of(step, before) * (1.0 + one.off)
        return {
            "step": step,
            "samples": now.samples,
            "updates": now.updates,
            "skipped": now.skipped,
            "loss": None if nan else loss,
            "lr": now.lr,
            "grad_norm": 0.5,
            "seconds": round(seconds, 6),
            "batch": [window.first, window.count, window.hash],
            **({"non_finite": True} if nan else {}),
        }

    def counters_at(self, one: Attempt, step: int) -> Counters:
        """The ledgers of an attempt after a step."""
        done = step - one.start.step
        lr = self.job.counters(step).lr
        return Counters(
            step, one.start.samples + done * self.job.batch, one.start.updates + done, one.start.skipped, lr
        )

    def _load(self, one: Attempt) -> None:
        one.phase, one.moved_at = Phase.LOAD, self._time.now
        self._beat(one)
        wanted = self._files.maps.get(one.number, {}).get("checkpoint") or ""
        if wanted != one.checkpoint:  # somebody has deleted it since the view was made
            self.rank_raises(0, "FileNotFoundError", f"{wanted}: no such checkpoint", blame=False)
            return
        self._go_on(one, self.job.load_s, lambda: self._begin_steps(one))

    def _begin_steps(self, one: Attempt) -> None:
        save = self._store.saves.get(one.checkpoint)
        if save is not None and not save.sound:
            one.state = f"{save.state}{ROTTEN}"
        share = self.job.batch // self._layout.dp
        for name, ranks in one.alive.items():
            for rank in ranks:
                place = self._layout.place(rank)
                ahead = next_batch(one.start.samples, share, place.dp)
                self._say(
                    name,
                    {
                        "k": "loaded",
                        "r": rank,
                        "a": one.number,
                        "checkpoint": one.checkpoint,
                        "step": one.start.step,
                        "samples": one.start.samples,
                        "updates": one.start.updates,
                        "skipped": one.start.skipped,
                        "lr": one.start.lr,
                        "digest": digest_of(one.state, rank),
                        "next": [ahead.first, ahead.count, ahead.hash],
                        "tp": place.tp,
                        "pp": place.pp,
                        "dp": place.dp,
                    },
                )
        one.loaded, one.phase = True, Phase.STEP
        one.step_at = one.moved_at = self._time.now
        for curse in self.curses:
            if curse.what == "off" and curse.met < curse.times:
                curse.met += 1
                one.off = curse.by
        self._beat(one)
        self._plan_steps(one)

    def _plan_steps(self, one: Attempt) -> None:
        """The next step at which something happens; those between are told when somebody looks."""
        target = self._next_step(one)
        seconds = self._took(one, self.job.step_s * one.slow) + (target - one.step - 1) * self.job.step_s * one.slow
        self._go_on(one, max(0.0, one.step_at + seconds - self._time.now), lambda: self._reach(one, target))

    def _next_step(self, one: Attempt) -> int:
        job, start = self.job, one.start.step
        marks = [job.steps, start + 1, start + 2, self.truth.furthest]
        if job.save_every:
            marks.append((one.step // job.save_every + 1) * job.save_every)
        for at in (*job.saves_at, *job.evaluations_at):
            ahead = -(-(at - one.step_at) // (job.step_s * one.slow))
            marks += [one.step + int(ahead)] if at > one.step_at else []
        for curse in self.curses:
            met = curse.step(one.start, one.slots, job.batch)
            # a rank fails in the step that it is doing; a loss is told with the step that it belongs to
            marks += [met if curse.what == "nan" else met - 1] if met is not None and curse.what != "off" else []
        if self._files.marked(one.number, "STOP"):
            marks.append(one.step + 1)
        return min((m for m in marks if m > one.step), default=one.step + 1)

    def _reach(self, one: Attempt, target: int) -> None:
        self.advance()
        if one.step < target:  # it was slower meanwhile
            self._plan_steps(one)
            return
        self.truth.furthest = max(self.truth.furthest, one.step)
        self._changed()
        for curse in self.curses:
            if curse.what != "off" and curse.step(one.start, one.slots, self.job.batch) == one.step + (
                curse.what != "nan"
            ):
                curse.met += 1
                if self._strike(one, curse):
                    return
        if one.step >= self.job.steps or self._files.marked(one.number, "STOP"):
            self._save(one, lambda: self._finish(one))
        elif self._save_is_due(one):
            self._save(one, lambda: self._plan_steps(one))
        elif self._is_due(self.job.evaluations_at, one):
            self._evaluate(one)
        else:
            self._plan_steps(one)

    def _is_due(self, times: tuple[float, ...], one: Attempt) -> bool:
        return any(one.step_at - self.job.step_s * one.slow < at <= one.step_at for at in times)

    def _save_is_due(self, one: Attempt) -> bool:
        every = self.job.save_every
        return bool(every and one.step % every == 0) or self._is_due(self.job.saves_at, one)

    def _evaluate(self, one: Attempt) -> None:
        self._enter(one, Phase.EVALUATION)
        self._go_on(one, self.job.evaluation_s, lambda: self._leave(one, lambda: self._plan_steps(one)))

    def _enter(self, one: Attempt, phase: Phase) -> None:
        one.phase, one.moved_at = phase, self._time.now
        self._time.after(BEAT_S, lambda: self._beat(one) if one.phase is phase and not one.over else None)

    def _leave(self, one: Attempt, then: Callable[[], None]) -> None:
        one.phase = Phase.STEP
        one.step_at = one.moved_at = self._time.now
        if one.told_phase is not Phase.STEP:
            self._beat(one)
        then()

    def _save(self, one: Attempt, then: Callable[[], None]) -> None:
        """Training stands still while the state is copied, and goes on while it is written."""
        step = one.step
        name = f"a{one.number:04d}-i{step:07d}"
        state = f"s{step}-a{one.number}" if one.off else f"s{step}"
        self._store.write(Save(name, one.number, self.counters_at(one, step), state, self._time.now))
        one.saving.add(name)
        self._enter(one, Phase.SAVE)
        self._tell_save(one, step, "begin")

        def copied() -> None:
            self._tell_save(one, step, "blocked", seconds=self.job.blocked_s)
            self._time.after(self.job.write_s, lambda: self._written(one, name, step))
            self._leave(one, then)

        self._go_on(one, self.job.blocked_s, copied)

    def _written(self, one: Attempt, name: str, step: int) -> None:
        """The last shard is there, when every writer lived until now; a frozen one still has its part to write."""
        if not one.whole(self._layout) or one.number in self.never_written:
            return
        if self.heeds_fences and self._files.why_refused(one.number) is not None:
            return  # a saver asks before it publishes (supervisor/training/fence.py)
        if any(self._node(n).power is not Power.UP for n in one.alive):
            self._time.after(1.0, lambda: self._written(one, name, step))
            return
        one.saving.discard(name)
        self._store.finish(name)
        self._tell_save(one, step, "written", seconds=self.job.blocked_s + self.job.write_s)

    def _tell_save(self, one: Attempt, step: int, state: str, seconds: float = 0.0) -> None:
        node = one.slots[0]
        if 0 in one.alive.get(node, ()):
            told = {"k": "save", "r": 0, "a": one.number, "step": step, "dir": f"iter_{step:07d}", "state": state}
            self._say(node, {**told, "seconds": seconds, "bytes": 1, "asynchronous": True})

    def _finish(self, one: Attempt) -> None:
        """The ranks wait for the last save, then end with 0."""
        if one.saving and one.number not in self.never_written:
            self._enter(one, Phase.SHUTDOWN)
            self._go_on(one, 1.0, lambda: self._finish(one))
            return
        one.over = True
        one.moving = False
        self.truth.finished = self.truth.finished or one.step >= self.job.steps
        for name in list(one.alive):
            for rank in sorted(one.alive[name]):
                self._say(name, {"k": "done", "r": rank, "a": one.number})
            self._end(one, name, code=0)

    def _go_on(self, one: Attempt, seconds: float, do: Callable[[], None]) -> None:
        """Do something later, if nothing hurts the attempt before; a thaw does it then."""
        if not one.moving:
            one.resume = do
            return

        def now() -> None:
            one.then = one.resume = None
            do()

        one.resume = do
        one.then = self._time.after(seconds, now)

    # --- hurt -------------------------------------------------------------------------------------------------------

    def rank_dies(
        self,
        rank: int,
        *,
        signal: int | None = None,
        code: int | None = None,
        words: tuple[str, ...] = (),
        attempt: int | None = None,
        blame: bool = True,
    ) -> None:
        """One rank ends; the others wait for it, then say so, then end too."""
        one = self.attempts.get(attempt) if attempt else self.newest
        if one is None or one.over:
            return
        node = one.slots[self._layout.slot_of(rank)]
        if rank not in one.alive.get(node, ()):
            return
        self._node(node).hurt = self._node(node).hurt or blame
        self._halt(one)
        for line in words:
            self.agents[node].read(rank, one.number, line.encode() + b"\n")
        one.alive[node].discard(rank)
        self._exit(one, node, rank, code=code, signal=signal)
        self._show(one)
        self._cascade(one)

    def rank_raises(self, rank: int, kind: str, text: str, *, blame: bool = True) -> None:
        """An exception that nobody catches."""
        one = self.newest
        if one is not None:
            node = one.slots[self._layout.slot_of(rank)]
            told = {"k": "exception", "r": rank, "a": one.number, "type": kind, "text": text, "where": "train.py:118"}
            self._halt(one)
            self._say(node, told)
            self.rank_dies(rank, code=1, words=(f"{kind}: {text}",), blame=blame)

    def rank_sticks(self, rank: int) -> None:
        """One rank stands still; all others wait for it, a step further."""
        one = self.newest
        if one is not None and not one.over:
            self._halt(one)
            self._node(one.slots[self._layout.slot_of(rank)]).hurt = True
            one.behind.add(rank)
            self._beat(one)
            self._time.after(self.job.watchdog_s, lambda: self._cascade(one))

    def all_stick(self) -> None:
        """All ranks stand still at the same place."""
        one = self.newest
        if one is not None and not one.over:
            self._halt(one)
            self._beat(one)

    def node_gone(self, name: str, *, frozen: bool) -> None:
        """A machine is lost, or stands still; what runs elsewhere waits for it."""
        for one in self.attempts.values():
            if one.alive.get(name):
                self._halt(one)
                if not frozen:
                    one.alive.pop(name)
                    self._cascade(one)
                else:
                    self._time.after(self.job.watchdog_s, lambda one=one: self._cascade(one, only_if_stuck=True))  # type: ignore[misc]

    def node_thaws(self, name: str) -> None:
        """What stood still there goes on, if everything else is still there."""
        for one in self.attempts.values():
            if (
                one.alive.get(name)
                and one.whole(self._layout)
                and not one.over
                and not one.behind
                and self._all_up(one)
            ):
                one.moving = True
                one.step_at = one.moved_at = self._time.now
                resume, one.resume = one.resume, None
                if one.phase is Phase.STEP and one.loaded:
                    self._plan_steps(one)
                elif resume is not None:
                    self._go_on(one, 1.0, resume)

    def _all_up(self, one: Attempt) -> bool:
        return all(self._node(name).power is Power.UP for name in one.alive)

    def _strike(self, one: Attempt, curse: Curse) -> bool:
        """A curse is met; True when the attempt does not go on from here."""
        slot = curse.slot if curse.slot is not None else one.slots.index(curse.node) if curse.node else None
        ranks = self._layout.ranks_of_slot(slot) if slot is not None else range(self._layout.world)
        rank = ranks[one.number % len(ranks)] if curse.sample is not None else ranks[0]
        match curse.what:
            case "rank-dies":
                self.rank_dies(rank, signal=11, words=curse.words, blame=curse.sample is None)
            case "rank-fails":
                self.rank_raises(rank, "ValueError", " ".join(curse.words), blame=curse.sample is None)
            case "stuck":
                self.rank_sticks(rank)
            case _:
                return False
        return True

    def _cascade(self, one: Attempt, *, only_if_stuck: bool = False) -> None:
        def still() -> bool:
            return not one.over and not one.moving and any(one.alive.values())

        def words() -> None:
            if still():
                for name, ranks in one.alive.items():
                    for rank in sorted(ranks):
                        line = (RESET if rank % 2 else TIMEOUT.format(rank=0)).encode()
                        self.agents[name].read(rank, one.number, line[:40])
                        self.agents[name].read(rank, one.number, line[40:] + b"\n")

        def ends() -> None:
            if still():
                for name in [n for n in one.alive if self._node(n).power is Power.UP]:
                    self._end(one, name, code=1)

        if only_if_stuck and not still():
            return
        self._time.after(self.job.cascade_s, words)
        self._time.after(self.job.cascade_exit_s, ends)

    def _halt(self, one: Attempt) -> None:
        """Nothing moves from here on; what was done before is told."""
        if one.moving:
            if one is self.newest:
                self.advance()
            self.truth.furthest = max(self.truth.furthest, one.step)
            one.moving = False
            if one.then is not None:
                one.then.call_off()
                one.then = None
            self._changed()

    def _end(
        self, one: Attempt, node: str, *, code: int | None = None, signal: int | None = None, refused: str | None = None
    ) -> None:
        for rank in sorted(one.alive.pop(node, ())):
            self._exit(one, node, rank, code=code, signal=signal, refused=refused)
        self._show(one)

    def _exit(
        self, one: Attempt, node: str, rank: int, *, code: int | None, signal: int | None, refused: str | None = None
    ) -> None:
        self._files.exits.setdefault(one.number, set()).add(rank)
        record = {"schema": 1, "rank": rank, "node": node, "attempt": one.number, "pid": 1000 + rank}
        ended = {"code": code, "signal": signal, "wall": self.agents[node].wall(), "refused": refused}
        self._say(node, {"k": "exit", "r": rank, "a": one.number, **record, **ended})

    def _show(self, one: Attempt) -> None:
        self._cluster.show(one.name, frozenset(name for name, ranks in one.alive.items() if ranks))

    def _beat(self, one: Attempt) -> None:
        """All ranks have changed their phase: the beats tell it."""
        one.told_phase = one.phase
        for name in one.alive:
            self.agents[name].beat()
        self._changed()

    def _say(self, node: str, message: dict[str, Any]) -> None:
        self.agents[node].heard(message)

    def _node(self, name: str) -> Node:
        return self._cluster.nodes[name]
