"""The one command that starts a controller for a run that has none. Pure."""

from __future__ import annotations

import shlex


def take_over(root: str, kind: str) -> str:
    """From any folder, without the training command: that is frozen with the run. On Slurm from outside of the job too."""
    where = shlex.quote(root)
    return f"relight watch {where}" if kind == "slurm" else f"relight run --run-dir {where}"
