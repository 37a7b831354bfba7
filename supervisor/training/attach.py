"""Find out from the environment whether this process is a rank under relight, and say hello."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from supervisor.training.channel import Channel
from supervisor.training.hook import install
from supervisor.training.run import Place, Run

if TYPE_CHECKING:
    from collections.abc import Mapping


def connect(
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    capability: str = "",
    *,
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Attach this process to its node's agent; never raises.

    `tp`, `pp` and `dp` are this rank's coordinates as the framework computed them, `capability` what decides the bits
    of its arithmetic (such as the CPU's). Outside relight the Run sends nothing. `environ` is os.environ unless given.
    """
    env = os.environ if environ is None else environ
    place = _place(env)
    path = env.get("RELIGHT_AGENT_SOCKET", "")
    if not path or place is None:
        return Run(Place(), None)
    run = Run(place, Channel(path, place.rank, place.attempt))
    run.hello(pid=os.getpid(), tp=tp, pp=pp, dp=dp, capability=capability)
    install(run)
    return run


def _place(env: Mapping[str, str]) -> Place | None:
    try:
        return Place(
            rank=int(env["RANK"]),
            attempt=int(env["RELIGHT_ATTEMPT"]),
            run_dir=env["RELIGHT_RUN_DIR"],
            save_dir=env.get("RELIGHT_SAVE_DIR", ""),
            load_dir=env.get("RELIGHT_LOAD_DIR", ""),
            checkpoint=env.get("RELIGHT_CHECKPOINT", ""),
            reporter=env.get("RELIGHT_REPORTER") == "1",
        )
    except (KeyError, ValueError):  # not started by the shim: then this is no rank of ours
        return None
