"""One rank's part of a small GPT: the layers of its stage, the rows and columns of its tensor parallel place.

Attention and MLP are split over TP (columns first, then rows, then an all-reduce); embeddings, norms and the head are
the same on all TP ranks. Residual dropout takes random numbers that are shared over TP, attention dropout its own.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from supervisor.bench.trainer.options import Options
from supervisor.bench.trainer.places import Groups, Place


@dataclass(frozen=True, slots=True)
class Spec:
    """One logical tensor: its global shape, and which part of it a rank holds. `split` is the axis over TP, or None."""

    name: str
    shape: tuple[int, ...]
    split: int | None
    scale: float  # of the normal distribution it begins with; 0.0: ones
    decays: bool
    parts: int  # TP size
    part: int  # TP coordinate

    @property
    def local(self) -> tuple[int, ...]:
        """The shape that this rank holds."""
        return tuple(n // self.parts if axis == self.split else n for axis, n in enumerate(self.shape))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where this rank's part begins in the global tensor."""
        return tuple(n * self.part if axis == self.split else 0 for axis, n in enumerate(self.local))

    def initial(self, seed: int) -> Any:
        """This rank's part of the first weights, float32: from the seed and the name, so any layout begins alike."""
        if self.scale == 0.0:
            return torch.ones(self.local)
        generator = torch.Generator().manual_seed(seed * 2**32 + zlib.crc32(self.name.encode()))
        whole = torch.randn(self.shape, generator=generator) * self.scale
        return whole if self.split is None else whole.chunk(self.parts, self.split)[self.part].contiguous()


def specs_of(o: Options, place: Place) -> list[Spec]:
    """The tensors of one stage, in a fixed order."""
    out: list[Spec] = []

    def add(name: str, *shape: int, split: int | None = None, scale: float = 0.02) -> None:
        out.append(Spec(name, shape, split, scale, decays=scale > 0, parts=o.tp, part=place.tp))

    if place.pp == 0:
        add("embedding.token", o.vocab, o.dim)
        add("embedding.position", o.seq, o.dim)
    inner = 0.02 / (2 * o.layers) ** 0.5  # outputs into the residual stream begin smaller, as in GPT-2
    per_stage = o.layers // o.pp
    for layer in range(place.pp * per_stage, (place.pp + 1) * per_stage):
        at = f"layers.{layer}"
        add(f"{at}.norm1", o.dim, scale=0.0)
        add(f"{at}.attention.qkv", 3, o.dim, o.dim, split=1)
        add(f"{at}.attention.out", o.dim, o.dim, split=1, scale=inner)
        add(f"{at}.norm2", o.dim, scale=0.0)
        add(f"{at}.mlp.up", 4 * o.dim, o.dim, split=0)
        add(f"{at}.mlp.down", o.dim, 4 * o.dim, split=1, scale=inner)
    if place.pp == o.pp - 1:
        add("head.norm", o.dim, scale=0.0)
        add("head.out", o.vocab, o.dim)
    return out


class _IntoTP(torch.autograd.Function):
    """Forward: as it is. Backward: the sum over TP, for each rank's columns gave a part of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _summed(grad, ctx.group), None


class _OutOfTP(torch.autograd.Function):
    """Forward: the sum over TP. Backward: as it is."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:  # noqa: ARG004 - torch gives the context
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # noqa: ARG004
        return grad, None


def _summed(x: Any, group: Any) -> Any:
    """The sum over a group in float32, rounded once to the type of `x`; the input is left as it is."""
    if group is None:
        return x
    total = x.detach().to(torch.float32, copy=True).contiguous()
    dist.all_reduce(total, group=group)
    return total.to(x.dtype)


class Stage:
    """The forward pass of one rank's layers, over the weights given to it (a name for each tensor)."""

    def __init__(self, options: Options, groups: Groups, weights: dict[str, Any]) -> None:
        self.o = options
        self.place = groups.place
        self.group = groups.tp
        self.w = weights
        self.training = True
        self.blocks = sorted({n.rsplit(".norm1", 1)[0] for n in weights if n.endswith(".norm1")}, key=_number)
        seeds = (options.seed, self.place.dp, self.place.pp)
        self.shared = torch.Generator().manual_seed(_mix("shared", *seeds))
        self.own = torch.Generator().manual_seed(_mix("own", *seeds, self.place.tp))
        hidden = torch.ones(options.seq, options.seq, dtype=torch.bool).triu(1)
        self.future = torch.zeros(options.seq, options.seq).masked_fill(hidden, float("-inf"))

    @property
    def first(self) -> bool:
        """Is this the stage that reads tokens?"""
        return self.place.pp == 0

    @property
    def last(self) -> bool:
        """Is this the stage that gives the loss?"""
        return self.place.pp == self.o.pp - 1

    def forward(self, x: Any, tokens: Any, counts: Any) -> Any:
        """From activations (micro, seq, dim), on the first stage from `tokens` (micro, seq + 1), to the next
        activations, on the last stage to the mean loss in float32; `counts` (micro,) weighs the samples there.
        """
        if self.first:
            x = functional.embedding(tokens[:, :-1], self.w["embedding.token"]) + self.w["embedding.position"]
            x = self._drop(x, self.shared)
        for at in self.blocks:
            x = x + self._drop(self._attention(self._norm(x, f"{at}.norm1"), at), self.shared)
            x = x + self._drop(self._mlp(self._norm(x, f"{at}.norm2"), at), self.shared)
        if not self.last:
            return x
        logits = functional.linear(self._norm(x, "head.norm"), self.w["head.out"]).float()
        losses = functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        return (losses.mean(1) * counts).mean()

    def _norm(self, x: Any, name: str) -> Any:
        return functional.layer_norm(x, (self.o.dim,), self.w[name])

    def _attention(self, x: Any, at: str) -> Any:
        qkv = self.w[f"{at}.attention.qkv"]
        mine = self.o.heads // self.o.tp
        x = _IntoTP.apply(x, self.group)
        q, k, v = (
            functional.linear(x, part).unflatten(-1, (mine, self.o.dim // self.o.heads)).transpose(1, 2)
            for part in qkv.unbind(0)
        )
        scores = (q @ k.transpose(-1, -2)).float() / (self.o.dim // self.o.heads) ** 0.5 + self.future
        shares = self._drop(scores.softmax(-1).to(v.dtype), self.own)
        mixed = (shares @ v).transpose(1, 2).flatten(2)
        return _OutOfTP.apply(functional.linear(mixed, self.w[f"{at}.attention.out"]), self.group)

    def _mlp(self, x: Any, at: str) -> Any:
        x = functional.gelu(functional.linear(_IntoTP.apply(x, self.group), self.w[f"{at}.mlp.up"]))
        return _OutOfTP.apply(functional.linear(x, self.w[f"{at}.mlp.down"]), self.group)

    def _drop(self, x: Any, generator: Any) -> Any:
        if not self.training or self.o.dropout == 0:
            return x
        kept = torch.rand(x.shape, generator=generator) >= self.o.dropout
        return x * kept / (1 - self.o.dropout)


def _number(block: str) -> int:
    return int(block.rsplit(".", 1)[1])


def _mix(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())
