"""What one rank is told on its command line, checked. Standard library only, so that a mistake is told at once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

PLANTS: Final = ("sampler-off-by-one", "stale-shard", "lost-second-moment", "wrong-lr", "wrong-place")
FAILS: Final = ("exception", "nan", "hang", "exit3")


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault of the restore on one rank, put in after a load; with `step`, only after a load of that step."""

    kind: str
    rank: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """A fault of the training itself, on one rank at one step."""

    kind: str
    step: int
    rank: int
    source: str = ""  # the file that it was injected by

    def __str__(self) -> str:
        return f"{self.kind}@{self.step}:{self.rank}"


@dataclass(frozen=True, slots=True)
class Options:
    """One rank's orders. Times are seconds; sizes count elements, samples or steps."""

    rank: int
    world: int
    tp: int
    pp: int
    dp: int
    steps: int
    save: str
    load: str
    checkpoint: str  # what relight says is loaded; "" = start from nothing
    save_every: int
    async_save: bool
    slow_save: tuple[int, float] | None
    tracker: bool
    eval_every: int
    eval_seconds: float
    step_seconds: float
    seed: int
    dim: int
    layers: int
    heads: int
    seq: int
    vocab: int
    dropout: float
    dtype: str
    global_batch: int
    micro: int
    data_version: str
    skip_samples: tuple[tuple[int, int], ...]
    lr: float
    warmup: int
    decay_steps: int
    weight_decay: float
    clip: float
    timeout: float
    save_timeout: float
    plants: tuple[Plant, ...]
    fails: tuple[Fail, ...]
    fail_once: str


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Options:
    """Read `argv`; the rank's number and the directories come from `env` (RANK, WORLD_SIZE, RELIGHT_*).

    Raises SystemExit(2) with one line that says what is wrong.
    """
    parser = _parser(env)
    given = vars(parser.parse_args(argv))
    try:
        rank, world = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
    except ValueError:
        parser.error("RANK and WORLD_SIZE must be whole numbers")
    try:
        given["skip_samples"] = [*_spans(env), *given["skip_samples"]]
    except ValueError:
        parser.error("RELIGHT_SKIP_SAMPLES: wanted FIRST:END,FIRST:END")
    given |= {"rank": rank, "world": world, "checkpoint": env.get("RELIGHT_CHECKPOINT", "")}
    for name in ("plants", "fails", "skip_samples"):
        given[name] = tuple(given[name])
    options = Options(**{field.name: given[field.name] for field in fields(Options)})
    wrong = _wrong(options)
    if wrong:
        parser.error(wrong)
    return options


def _wrong(o: Options) -> str | None:
    """What does not fit together, in one line; None when all does."""
    if min(o.tp, o.pp, o.dp, o.micro, o.global_batch, o.dim, o.layers, o.heads, o.seq, o.vocab) < 1:
        return "sizes start at 1"
    tests = (
        (o.tp * o.pp * o.dp == o.world, f"tp x pp x dp = {o.tp * o.pp * o.dp}, but WORLD_SIZE is {o.world}"),
        (0 <= o.rank < o.world, f"RANK {o.rank} is outside of {o.world}"),
        (o.heads % o.tp == 0, f"heads {o.heads} can't be divided by tp {o.tp}"),
        (o.dim % o.heads == 0, f"dim {o.dim} can't be divided by heads {o.heads}"),
        (o.layers % o.pp == 0, f"layers {o.layers} can't be divided by pp {o.pp}"),
        (o.global_batch % (o.dp * o.micro) == 0, f"global batch {o.global_batch} is no multiple of dp x micro"),
        (o.save_every == 0 or bool(o.save), "--save-every needs --save or RELIGHT_SAVE_DIR"),
        (0 <= o.dropout < 1, "dropout lies in [0, 1)"),
        (o.dp > 1 or all(plant.kind != "wrong-place" for plant in o.plants), "wrong-place needs dp of 2 at least"),
        (len(o.data_version.encode()) <= 32, "a data version has 32 bytes at most"),
    )
    return next((text for good, text in tests if not good), None)


def _parser(env: Mapping[str, str]) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="supervisor.bench.trainer", allow_abbrev=False, description=__doc__)
    for name, default, text in (
        ("--tp", 1, "tensor parallel size"),
        ("--pp", 1, "pipeline parallel size"),
        ("--dp", 1, "data parallel size"),
        ("--steps", 20, "the step at which training has reached its end"),
        ("--save-every", 0, "steps between saves; 0: only at the end"),
        ("--eval-every", 0, "steps between evaluations; 0: never"),
        ("--seed", 1, "of the first weights and of dropout"),
        ("--dim", 64, "width"),
        ("--layers", 4, "over all stages"),
        ("--heads", 4, "attention heads"),
        ("--seq", 32, "tokens a sample"),
        ("--vocab", 128, "size of the vocabulary"),
        ("--global-batch", 8, "samples a step, over all replicas"),
        ("--micro", 2, "samples a micro-batch"),
        ("--warmup", 10, "updates of linear warm-up"),
        ("--decay-steps", 1000, "updates until the cosine has come down"),
    ):
        p.add_argument(name, type=int, default=default, help=f"{text} (default {default})")
    for name, number, text in (
        ("--eval-seconds", 0.0, "least time of an evaluation"),
        ("--step-seconds", 0.0, "least time of a step"),
        ("--dropout", 0.1, "share that is dropped"),
        ("--lr", 1e-3, "highest learning rate"),
        ("--weight-decay", 0.1, "on matrices"),
        ("--clip", 1.0, "largest gradient norm"),
        ("--timeout", 120.0, "seconds until a collective of the training gives up"),
        ("--save-timeout", 600.0, "the same for saves and loads"),
    ):
        p.add_argument(name, type=float, default=number, help=f"{text} (default {number})")
    p.add_argument("--save", default=env.get("RELIGHT_SAVE_DIR", ""), metavar="DIR")
    p.add_argument("--load", default=env.get("RELIGHT_LOAD_DIR", ""), metavar="DIR")
    p.add_argument("--async-save", action="store_true", help="write while training goes on")
    p.add_argument("--slow-save", type=_slow, metavar="STEP:SECONDS", help="slow the save of one step down")
    p.add_argument("--tracker", action="store_true", help="outside relight: note the newest save in the save directory")
    p.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16", help="of the weights and activations")
    p.add_argument("--data-version", default="v1", help="another version is other data")
    p.add_argument("--skip-samples", type=_span, action="append", default=[], metavar="FIRST:END")
    p.add_argument("--plant", dest="plants", type=_plant, action="append", default=[], metavar="KIND[:rank=R][:step=S]")
    p.add_argument("--fail", dest="fails", type=_fail, action="append", default=[], metavar="KIND@STEP:RANK")
    p.add_argument("--fail-once", default="", metavar="FILE", help="each --fail fires once; FILE remembers")
    return p


def _slow(text: str) -> tuple[int, float]:
    step, _, seconds = text.partition(":")
    return int(step), float(seconds)


def _spans(env: Mapping[str, str]) -> list[tuple[int, int]]:
    """What relight says is left out. The option adds to it. Raises ValueError."""
    return [_span(text) for text in env.get("RELIGHT_SKIP_SAMPLES", "").split(",") if text]


def _span(text: str) -> tuple[int, int]:
    first, _, end = text.partition(":")
    if not 0 <= int(first) < int(end):
        raise ValueError(text)
    return int(first), int(end)


def _plant(text: str) -> Plant:
    kind, *rest = text.split(":")
    more = dict(part.split("=", 1) for part in rest)
    if kind not in PLANTS or not set(more) <= {"rank", "step"}:
        raise ValueError(text)
    return Plant(kind, int(more.get("rank", "0")), int(more["step"]) if "step" in more else None)


def _fail(text: str) -> Fail:
    found = re.fullmatch(r"([a-z0-9]+)@(\d+):(\d+)", text)
    if not found or found[1] not in FAILS:
        raise ValueError(text)
    return Fail(found[1], int(found[2]), int(found[3]))
