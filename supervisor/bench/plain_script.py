"""A training script that knows nothing of relight: all that it gives are Megatron's iteration lines.

`python plain_script.py ITERATIONS SECONDS`. Nothing is trained; the loss follows from the iteration alone, so each pass is alike.
"""

import os
import sys
import time


def line(step: int, last: int, seconds: float) -> str:
    """One line as Megatron-LM prints it."""
    return (
        f" [{time.strftime('%Y-%m-%d %H:%M:%S')}] iteration {step:8d}/{last:8d} | consumed samples: {step * 8:12d} | "
        f"elapsed time per iteration (ms): {seconds * 1000:.1f} | learning rate: {1e-3 / step:.6E} | global batch size: "
        f"    8 | lm loss: {2 + 8 / step:.6E} | loss scale: 1.0 | grad norm: {1 / step:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def main(last: int, seconds: float) -> None:
    """Print from the last rank, as Megatron does."""
    speaks = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    for step in range(1, last + 1):
        time.sleep(seconds)
        if speaks:
            print(line(step, last, seconds), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
