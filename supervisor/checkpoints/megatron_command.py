"""What Megatron-LM must be told so that it saves and loads as relight has it, put into the command of a run. Pure.

Names are those of Megatron-LM as packed with megatron-core 0.19.2 (training/arguments.py and training/config); it takes no
shortened names (allow_abbrev=False), and of an argument given twice the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.errors import UserError

FRAMEWORK: Final = "megatron"
SAVE_DIR: Final = "{save_dir}"
LOAD_DIR: Final = "{load_dir}"
MUST_LOAD: Final = "--exit-on-missing-checkpoint"
"""Without it Megatron starts from random weights where a tracker is missing; with it, it ends with exit code 0 there."""
VALUES: Final[Mapping[str, str]] = {"--save": SAVE_DIR, "--load": LOAD_DIR, "--ckpt-format": "torch_dist"}
TO_PASS: Final = (
    f"--save {SAVE_DIR} --load {LOAD_DIR} {MUST_LOAD} --ckpt-format torch_dist (in a script: "
    f'--save "$RELIGHT_SAVE_DIR" --load "$RELIGHT_LOAD_DIR" ${{RELIGHT_CHECKPOINT:+{MUST_LOAD}}} --ckpt-format torch_dist)'
)
REFUSED: Final[Mapping[str, str]] = {
    "--ckpt-assume-constant-structure": "it saves by an old plan, so that a save may lack parts and end without an error",
    "--save-retain-interval": "it deletes saves and trusts the newest unchecked; relight keeps the newest that are whole",
    "--no-save-optim": "a save without its optimizer can't be gone on from",
    "--no-save-rng": "a save without its random state can't be gone on from",
    "--no-load-optim": "a restart would begin with an empty optimizer",
    "--no-load-rng": "a restart would begin with another random state",
    "--finetune": "a restart would begin at iteration 0; to start from given weights there is --pretrained-checkpoint",
    "--ckpt-step": "each restart would look for that iteration; to go back to one there is `relight plan RUN --checkpoint ID`",
    "--override-ckpt-iteration": "each restart would count from there",
    "--non-persistent-ckpt-type": "Megatron would load saves that nobody has checked, beside those that relight gives it",
    "--ckpt-convert-format": "it converts a save and ends; run it by itself, outside of relight",
}
"""What a run under relight can't be started with, and why."""
WARNED: Final[Mapping[str, str]] = {
    "--verify-integrity": (
        "rank 0 sums every file with sha256 while all wait (99 min for 7 TB); relight sums them beside training, so leave it out"
    ),
}
SAVE_INTERVAL: Final = frozenset({"--save-interval", "--persistent-save-interval"})
_OWN: Final = frozenset({
    *VALUES, MUST_LOAD, *REFUSED, *WARNED, *SAVE_INTERVAL, "--train-iters", "--train-samples", "--num-layers",
    "--hidden-size", "--num-attention-heads", "--seq-length", "--micro-batch-size", "--global-batch-size", "--data-path",
    "--mock-data", "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--use-checkpoint-args", "--bf16", "--fp16",
    "--tokenizer-type", "--use-distributed-optimizer", "--pretrained-checkpoint", "--async-save",
})  # fmt: skip
"""Any of these shows that Megatron's arguments stand in the command itself."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command with what it must have, and what a person should know of it, a sentence each."""

    argv: tuple[str, ...]
    warnings: tuple[str, ...]


def prepare(argv: Sequence[str]) -> Prepared:
    """The command with `--save`, `--load`, `--exit-on-missing-checkpoint` and `--ckpt-format torch_dist`; the placeholders
    are filled in for each attempt. A command that is prepared already stays as it is.

    Raises UserError for an argument with which a restart would not go on, and where no argument of Megatron's can be seen.
    """
    names = {word.partition("=")[0] for word in argv}
    if "--yaml-cfg" in names:
        raise UserError(
            "--yaml-cfg: Megatron then reads no argument of the command. Put into that file: save: ${RELIGHT_SAVE_DIR}, "
            'load: ${RELIGHT_LOAD_DIR}, ckpt_format: torch_dist; and leave `framework = "megatron"` out'
        )
    if not names & _OWN:
        raise UserError(
            'checkpoints.framework = "megatron", and no argument of Megatron\'s stands in the command. Where a script or a '
            f"file holds them, it must pass {TO_PASS}; and leave `framework` out"
        )
    for name, why in REFUSED.items():
        if name in names:
            raise UserError(f"{name}: {why}. Leave it out")
    missing = [name for name in VALUES if not _is_given(argv, name)]
    more = [word for name in missing for word in (name, VALUES[name])]
    if MUST_LOAD not in names:
        more.append(MUST_LOAD)
    return Prepared((*argv, *more), _warnings(names))


def _is_given(argv: Sequence[str], name: str) -> bool:
    """Is it there, with the one value that is right? Raises UserError for another value."""
    values = []
    for at, word in enumerate(argv):
        own, equals, value = word.partition("=")
        if own == name:
            values.append(value if equals else next(iter(argv[at + 1 : at + 2]), ""))
    wrong = next((value for value in values if value != VALUES[name]), None)
    if wrong is None:
        return bool(values)
    shown = f"{name} {wrong[:200]}".rstrip()
    if name == "--ckpt-format":
        raise UserError(f"{shown}: only torch_dist can be checked and restored here. Leave it out")
    raise UserError(
        f"{shown}: relight gives --save and --load for each attempt. Leave it out; saves that are in that folder come "
        "into the run with `relight checkpoints adopt RUN PATH`"
    )


def _warnings(names: set[str]) -> tuple[str, ...]:
    found = [f"{name}: {why}" for name, why in WARNED.items() if name in names]
    if names.isdisjoint(SAVE_INTERVAL):
        found.append("--save-interval is not given: Megatron then saves at the end only. See: relight interval")
    return tuple(found)


def for_attempt(argv: Sequence[str], *, from_nothing: bool) -> tuple[str, ...]:
    """The prepared command for one attempt. One that starts from nothing has nothing to load: Megatron would just end."""
    return tuple(word for word in argv if not (from_nothing and word == MUST_LOAD))
