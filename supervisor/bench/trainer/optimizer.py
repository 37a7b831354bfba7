"""AdamW by hand over flat buffers: BF16 weights, FP32 master weights, gradients and both moments, one int64 step.

By hand because torch's own imports a compiler (0.6 s a process, measured), and because the state is then plain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from supervisor.bench.trainer.gpt import Spec
from supervisor.bench.trainer.options import Options

BETA1: Final = 0.9
BETA2: Final = 0.95
EPSILON: Final = 1e-8


@dataclass(slots=True)
class Buffers:
    """One rank's tensors, laid end to end. Each buffer has the same order and length."""

    specs: list[Spec]
    weights: Any
    master: Any
    exp_avg: Any
    exp_avg_sq: Any
    step: Any = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))  # updates applied

    @classmethod
    def initial(cls, specs: list[Spec], seed: int, dtype: Any) -> Buffers:
        """The first weights, in `dtype` and as float32 master weights; moments zero."""
        master = torch.cat([spec.initial(seed).flatten() for spec in specs])
        return cls(specs, master.to(dtype), master, torch.zeros_like(master), torch.zeros_like(master))

    def clone(self) -> Buffers:
        """A copy that training does not touch, for a save in the background."""
        parts = (self.weights, self.master, self.exp_avg, self.exp_avg_sq, self.step)
        return Buffers(self.specs, *(part.clone() for part in parts))

    def views(self, buffer: Any) -> list[Any]:
        """Each spec's part of one flat buffer, in its shape."""
        sizes = [math.prod(spec.local) for spec in self.specs]
        return [part.view(spec.local) for part, spec in zip(buffer.split(sizes), self.specs, strict=True)]


def rate(o: Options, updates: int) -> float:
    """The learning rate of the update after `updates` of them: linear warm-up, then a cosine down to a tenth."""
    if updates < o.warmup:
        return o.lr * (updates + 1) / o.warmup
    along = min(1.0, (updates - o.warmup) / max(1, o.decay_steps - o.warmup))
    return o.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * along)))


class AdamW:
    """Gradients in, new weights out. Nothing here is state that a save would need beside the buffers."""

    def __init__(self, buffers: Buffers, o: Options, *, counts_shared: bool) -> None:
        self.buffers = buffers
        self.o = o
        self.grads = torch.zeros_like(buffers.master)
        self.leaves = [view.detach().requires_grad_() for view in buffers.views(buffers.weights)]
        self._grad_views = buffers.views(self.grads)
        self._decay = self._mask([spec.decays for spec in buffers.specs])
        # What is the same on all TP ranks counts once in the norm.
        self._counted = [counts_shared or spec.split is not None for spec in buffers.specs]

    def collect(self) -> None:
        """Add each tensor's gradient to the float32 buffer, and forget it."""
        for leaf, total in zip(self.leaves, self._grad_views, strict=True):
            total.add_(leaf.grad)
            leaf.grad = None

    def square(self) -> Any:
        """This rank's part of the squared gradient norm, float64, shape (1,)."""
        parts = [
            g.double().square().sum() for g, counted in zip(self._grad_views, self._counted, strict=True) if counted
        ]
        return torch.stack(parts).sum().reshape(1) if parts else torch.zeros(1, dtype=torch.float64)

    def apply(self, lr: float, norm: float) -> None:
        """One update with the gradients clipped to the largest norm allowed."""
        b, g = self.buffers, self.grads
        b.step += 1
        updates = int(b.step)
        g.mul_(min(1.0, self.o.clip / (norm + 1e-6)))
        b.exp_avg.mul_(BETA1).add_(g, alpha=1 - BETA1)
        b.exp_avg_sq.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        spread = (b.exp_avg_sq / (1 - BETA2**updates)).sqrt_().add_(EPSILON)
        b.master.addcmul_(b.master, self._decay, value=-lr * self.o.weight_decay)
        b.master.addcdiv_(b.exp_avg, spread, value=-lr / (1 - BETA1**updates))
        b.weights.copy_(b.master)

    def _mask(self, flags: list[bool]) -> Any:
        sizes = [math.prod(spec.local) for spec in self.buffers.specs]
        return torch.cat([torch.full((n,), float(flag)) for n, flag in zip(sizes, flags, strict=True)])
