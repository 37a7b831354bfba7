"""What a training script imports: it tells the supervisor where each rank is. Standard library only.

    from supervisor.training import connect
    run = connect(tp=tp, pp=pp, dp=dp)
    run.phase("load")
    run.loaded(step=40, samples=320, updates=40, lr=lr, digest=digest, next_batch=(320, 8, ids_hash), tp=tp, pp=pp, dp=dp)
    for ...:
        run.step(step, samples=..., updates=..., loss=..., lr=lr)
        if a save is due:
            run.save_began(step, "iter_0000060")  # relative to run.save_dir
            ...  # write the shards
            run.describe_save(f"{run.save_dir}/iter_0000060", step=60, ...)  # a path; each rank, as it will tell loaded()
            run.save_blocked(step)
            ...  # rank 0, when all ranks are done: write `.metadata`, then the tracker
            run.save_written(step)  # rank 0 alone
        if run.should_stop():
            ...  # save, and end with exit 0
    run.done()  # at the end of training only

Acceptance fails a rank that does not tell its place in loaded(), and one whose place, counters, learning rate, digest or
next samples are not those of the save. From nothing, step, samples, updates and skipped are 0.

Outside relight every call does nothing, so a script may keep them.
"""

from __future__ import annotations

from supervisor.training.attach import connect
from supervisor.training.run import Run

__all__ = ["Run", "connect"]
