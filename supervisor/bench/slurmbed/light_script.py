"""A training script that trains nothing and tells everything: so light that 64 of them run on one machine.

It marks when its imports are done, in a line of the file that RELIGHT_BENCH_MARKS names. RELIGHT_BENCH_IMPORT: a module to
be imported first, such as torch. Step, samples and loss follow from the step's number, so each pass is alike.
"""

import importlib
import json
import os
import time

import supervisor.training as relight

BATCH = 8
RATE = 1e-3
STEP_S = 0.2


def mark(attempt: str, rank: int) -> None:
    """One line, written in one piece. `t`: wall seconds, for it is held against the journal of the same machine."""
    line = json.dumps({"t": time.time(), "attempt": int(attempt), "rank": rank}) + "\n"
    file = os.open(os.environ["RELIGHT_BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def main() -> None:
    """Mark, then speak as a trainer does, for ever. Without relight only mark."""
    if module := os.environ.get("RELIGHT_BENCH_IMPORT"):
        importlib.import_module(module)
    # A bare srun has no attempts; its tasks are numbered by Slurm.
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    mark(os.environ.get("RELIGHT_ATTEMPT", "0"), rank)
    run = relight.connect(tp=0, pp=0, dp=rank)
    if not run.attached:
        return
    batch = (0, BATCH, "0")
    run.loaded(lr=RATE, next_batch=batch, tp=0, pp=0, dp=rank)
    step = 0
    while True:
        time.sleep(STEP_S)
        step, samples = step + 1, (step + 1) * BATCH
        run.step(
            step, samples=samples, updates=step, loss=2 + 8 / step, lr=RATE, grad_norm=1.0, seconds=STEP_S, batch=batch
        )
        batch = (samples, BATCH, f"{step:x}")


if __name__ == "__main__":
    main()
