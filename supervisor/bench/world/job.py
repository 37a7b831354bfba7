"""The training job as given: how long its phases take, when it saves, what it reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from policies.facts import Batch, Counters


@dataclass(frozen=True, slots=True)
class Job:
    """Durations in seconds. `batch`: samples a step. `saves_at`, `evaluations_at`: wall seconds.

    `save_every`: steps, 0 for none.
    """

    step_s: float = 2.0
    start_s: float = 4.0
    load_s: float = 6.0
    first_step_s: float = 3.0
    steps: int = 1_000_000
    batch: int = 64
    save_every: int = 0
    saves_at: tuple[float, ...] = ()
    blocked_s: float = 2.0
    write_s: float = 8.0
    evaluations_at: tuple[float, ...] = ()
    evaluation_s: float = 60.0
    cascade_s: float = 6.0  # after a rank is gone, the others print their timeouts
    cascade_exit_s: float = 40.0  # and end
    watchdog_s: float = 600.0  # peers that only wait, end after this

    def counters(self, step: int, skipped: int = 0, began_at: int = 0) -> Counters:
        """What the ledgers say after a step. `began_at`: samples that were left out before."""
        return Counters(step, began_at + step * self.batch, step - skipped, skipped, learning_rate(step))

    def window(self, samples: int) -> Batch:
        """The samples of the step that begins at this position."""
        return Batch(samples, self.batch, f"h{samples:x}")


def learning_rate(step: int) -> float:
    """A schedule; the same step gives the same rate."""
    return round(1.5e-4 * max(0.1, 1.0 - step / 200_000), 12)


def loss_of(step: int, samples: int) -> float:
    """A loss that falls, with the noise of its batch; the same step and batch give the same bits."""
    noise = int.from_bytes(blake2b(f"{step}:{samples}".encode(), digest_size=2).digest()) / 65_536 - 0.5
    return round(1.8 + 9.0 / (1.0 + step / 50) + 0.02 * noise, 9)


@dataclass(slots=True)
class Curse:
    """Something that will happen to an attempt by itself, each time it is met, at most `times` times.

    It is met at `steps` steps after the start of an attempt (by a node, a slot or anywhere), or at the step that reads `sample`.
    """

    what: str  # rank-dies, rank-fails, nan, off, stuck, save-stuck
    node: str = ""
    slot: int | None = None
    steps: int | None = None
    sample: int | None = None
    at_step: int | None = None
    times: int = 1_000
    words: tuple[str, ...] = ()
    by: float = 0.0  # how far a loss is off, relative
    met: int = 0

    def step(self, start: Counters, slots: tuple[str, ...], batch: int) -> int | None:
        """The step of an attempt at which it is met; None when it is not."""
        if self.met >= self.times or (self.node and self.node not in slots):
            return None
        if self.sample is not None:
            ahead = (self.sample - start.samples) // batch
            return start.step + 1 + ahead if ahead >= 0 else None
        if self.at_step is not None:
            return self.at_step if self.at_step > start.step else None
        return start.step + (self.steps or 1)
