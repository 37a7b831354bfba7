"""One rank from its start to its end: meet the others, load, step, save, report."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from supervisor import training
from supervisor.bench.trainer import faults, saving
from supervisor.bench.trainer.gpt import Stage, specs_of
from supervisor.bench.trainer.optimizer import AdamW, Buffers, rate
from supervisor.bench.trainer.options import Options
from supervisor.bench.trainer.pipeline import Pipeline
from supervisor.bench.trainer.places import Groups, Layout, join
from supervisor.bench.trainer.samples import Sampler, batch_of, small_hash, tokens, weights_of
from supervisor.bench.trainer.state import Counters, as_state, digest, read_text, take_back

HELD_OUT = 10**12  # samples from here on are for evaluation; training does not come this far


def train(o: Options) -> None:
    """Train to `o.steps`, or to the step at which a planned stop is seen. Raises on any fault."""
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    capability = torch.backends.cpu.get_cpu_capability()
    layout = Layout(o.tp, o.pp, o.dp)
    place = layout.place(o.rank)
    run = training.connect(tp=place.tp, pp=place.pp, dp=place.dp, capability=capability)
    fails = faults.Fails(o)
    groups = join(layout, o.rank, o.timeout, o.save_timeout)
    trainer = Trainer(o, run, groups, fails, capability)
    trainer.restore()
    run.phase("step")
    stopped = False
    while trainer.counters.step < o.steps and not stopped:
        stopped = trainer.step()
        trainer.saver.poll()
        step = trainer.counters.step
        if o.eval_every and step % o.eval_every == 0:
            trainer.evaluate()
        if o.save_every and step % o.save_every == 0 and step < o.steps and not stopped:
            trainer.save(wait=not o.async_save)
    trainer.end()
    run.phase("shutdown")
    dist.barrier()
    if trainer.counters.step >= o.steps:
        run.done()


class Trainer:
    """The state of one rank, and what can be done with it."""

    def __init__(self, o: Options, run: training.Run, groups: Groups, fails: faults.Fails, capability: str) -> None:
        self.o, self.run, self.groups, self.fails = o, run, groups, fails
        self.capability = capability
        self.place = groups.place  # where this rank believes to be, as far as data is concerned
        self.counters = Counters()
        self.sampler = Sampler(o.data_version, o.global_batch, o.dp, o.skip_samples)
        self.lr_shift = 0  # a planted fault shifts the schedule
        dtype = torch.bfloat16 if o.dtype == "bf16" else torch.float32
        specs = specs_of(o, groups.place)
        self.buffers = Buffers.initial(specs, o.seed, dtype)
        self.optimizer = AdamW(self.buffers, o, counts_shared=groups.place.tp == 0)
        names = [spec.name for spec in specs]
        self.stage = Stage(o, groups, dict(zip(names, self.optimizer.leaves, strict=True)))
        self.pipeline = Pipeline(self.stage, groups, (o.micro, o.seq, o.dim), dtype)
        self.saver = saving.Saver(run, o.save, groups.save, tracker=o.tracker)
        self.poisoned = fails.poisoned(groups.layout)
        self.reporter = o.rank == o.world - 1

    def restore(self) -> None:
        """Load what the tracker names, or start from nothing; then say where this rank is. Raises ValueError."""
        path = saving.chosen(self.o.load, self.o.checkpoint) if self.o.load else None
        if path is None and self.o.checkpoint:
            raise ValueError(f"{self.o.checkpoint} is to be loaded, but no directory to load from is given")
        self.run.phase("load")
        if path is not None:
            self._load(path)
        self.run.loaded(
            checkpoint=self.o.checkpoint or (path or ""),
            **asdict(self.counters),
            lr=self.lr(),
            digest=digest(self._state(self.buffers)),
            next_batch=self.next_batch(),
            **asdict(self.place),
        )
        if self.reporter:
            print(f"loaded {path or 'nothing'}, step {self.counters.step}", flush=True)

    def _load(self, path: str) -> None:
        state = self._state(self.buffers)
        first_master = self.buffers.master.clone()
        saving.load(path, state, self.groups.save)
        self.counters, self.sampler.position = take_back(state, self.stage)
        for name, now in (("data.version", self.o.data_version), ("machine.capability", self.capability)):
            if (saved := read_text(state[name])) != now:
                raise ValueError(f"{path} was made with {name} {saved}, this rank has {now}")
        kinds = faults.plants_for(self.o, self.counters.step)
        faults.spoil(kinds, self.buffers, first_master)
        self.sampler.shift = int("sampler-off-by-one" in kinds)
        self.lr_shift = 100 if "wrong-lr" in kinds else 0
        if "wrong-place" in kinds:
            self.place = type(self.place)(self.place.tp, self.place.pp, (self.place.dp + 1) % self.o.dp)

    def lr(self) -> float:
        """The learning rate of the next update."""
        return rate(self.o, self.counters.updates + self.lr_shift)

    def next_batch(self) -> tuple[int, int, str]:
        """What this rank reads next: its replica's part of the next batch."""
        return batch_of(self.o.data_version, self.sampler.part(self.place.dp))

    def step(self) -> bool:
        """One step on all ranks. Returns whether rank 0 has seen that a stop is asked for."""
        o, c = self.o, self.counters
        began = time.monotonic()
        self.fails.before(c.step + 1)
        self.poisoned = self.fails.poisoned(self.groups.layout)
        ids = self.sampler.part(self.place.dp)
        first = self.sampler.first()
        lr = self.lr()
        self.optimizer.grads.zero_()
        loss = self.pipeline.train(self._micros(ids), self.optimizer.collect)
        if self.groups.dp is not None:
            dist.all_reduce(self.optimizer.grads, group=self.groups.dp)
            self.optimizer.grads.div_(o.dp)
        norm = self._norm()
        if self.stage.last and self.groups.place.tp == 0 and not math.isfinite(loss):  # as Megatron names the rank
            span = f"samples {ids.start} to {ids.stop - 1}"
            print(f"rank {o.rank}: found NaN in local forward loss, step {c.step + 1}, {span}", flush=True)
        loss, read, stop, bad = self._agree(loss, norm, ids)
        self.sampler.advance()
        c.step += 1
        c.samples += o.global_batch
        if bad:
            c.skipped += 1
        else:
            self.optimizer.apply(lr, norm)
            c.updates += 1
        time.sleep(max(0.0, began + o.step_seconds - time.monotonic()))  # stands for the work of a larger model
        seconds = time.monotonic() - began
        self.run.step(
            **asdict(c), loss=loss, lr=lr, grad_norm=norm, seconds=seconds, batch=(first, o.global_batch, f"{read:x}")
        )
        if self.reporter:
            print(f"step {c.step} loss {loss:.6f} lr {lr:.3e} norm {norm:.4f} {seconds:.3f} s", flush=True)
        return stop

    def _norm(self) -> float:
        """The gradient norm over all of the model: squares are summed in float64 over stages and TP ranks."""
        square = self.optimizer.square()
        if self.groups.mp is not None:
            dist.all_reduce(square, group=self.groups.mp)
        return math.sqrt(square.item())

    def _agree(self, loss: float, norm: float, ids: range) -> tuple[float, int, bool, bool]:
        """What all ranks must see alike: the mean loss, a sum over what was read, a stop, whether to skip the update.

        One all-reduce of four float64; the sum over what was read is of 32-bit hashes, so it is exact.
        """
        speaks = self.stage.last and self.groups.place.tp == 0
        reads = self.stage.first or self.stage.last
        told = torch.tensor(
            [
                loss / self.o.dp if speaks else 0.0,
                float(small_hash(self.o.data_version, ids)) if reads else 0.0,
                float(self.o.rank == 0 and self.run.should_stop()),
                float(not (math.isfinite(loss) and math.isfinite(norm))),
            ],
            dtype=torch.float64,
        )
        dist.all_reduce(told)
        mean, read, stop, bad = told.tolist()
        return mean, int(read), stop > 0, bad > 0

    def _micros(self, ids: range) -> list[tuple[Any, Any]]:
        parts = [ids[at : at + self.o.micro] for at in range(0, len(ids), self.o.micro)]
        return [
            (tokens(self.o.data_version, part, self.o.seq, self.o.vocab), weights_of(part, self.poisoned))
            for part in parts
        ]

    def evaluate(self) -> None:
        """The loss on samples that are never trained on; takes `eval_seconds` at least."""
        began = time.monotonic()
        self.run.phase("evaluation")
        share = self.o.global_batch // self.o.dp
        start = HELD_OUT + self.groups.place.dp * share
        loss = self.pipeline.evaluate(self._micros(range(start, start + share)))
        time.sleep(max(0.0, began + self.o.eval_seconds - time.monotonic()))
        if self.reporter:
            print(f"evaluation at step {self.counters.step}: loss {loss:.6f}", flush=True)
        self.run.phase("step")

    def save(self, *, wait: bool) -> None:
        """Save this step. With `wait` False a copy is written while training goes on."""
        step = self.counters.step
        state = self._state(self.buffers if wait else self.buffers.clone())
        told = {
            **asdict(self.counters),
            "lr": self.lr(),
            "digest": digest(state),
            "next_batch": self.next_batch(),
            **asdict(self.place),
            "data_version": self.o.data_version,
        }
        slow = None
        if self.o.slow_save and self.o.slow_save[0] == step:
            slow = saving.Slow(self.o.slow_save[1], self.o.rank, self.o.world)
        self.saver.save(
            step, state, lambda path, files: self.run.describe_save(path, files=files, **told), slow, wait=wait
        )

    def end(self) -> None:
        """Finish what is being written, and save the last step if that is not done yet."""
        self.saver.finish()
        if self.o.save and self.saver.newest != self.counters.step and self.counters.step > 0:
            self.save(wait=True)

    def _state(self, buffers: Buffers) -> dict[str, Any]:
        return as_state(
            buffers,
            self.counters,
            self.sampler.position,
            self.stage,
            version=self.o.data_version,
            capability=self.capability,
        )
