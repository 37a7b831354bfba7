"""What a training script imports: it tells the supervisor where each rank is. Standard library only.

    from supervisor.training import connect
    run = connect()
    run.loaded(step=40, samples=320, updates=40)
    for ...:
        run.step(step, samples=..., loss=...)

Outside relight every call does nothing, so a script may keep them.
"""

from __future__ import annotations

from supervisor.training.attach import connect
from supervisor.training.run import Run

__all__ = ["Run", "connect"]
