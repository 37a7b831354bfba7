"""The one task of a node where torchrun (or ft_launcher) starts the ranks: it starts torchrun, which starts a shim for each rank.

Run as a file, `python -I -S .../launcher_task.py RUN_DIR ATTEMPT`; task i of the step is slot i. Ranks that torchrun ends
without (it could not start them, or meet its peers) get their exit records here, so that nobody waits for them.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as in shim.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from supervisor.agent import place, shim
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import place
    import shim

    sys.path.pop()

_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "RELIGHT_REPORTER")
"""What torchrun tells the ranks, or their shims do; it must not be told of one rank itself."""


def command(where: place.Place, launch: Mapping[str, Any], slot: int) -> list[str]:
    """The launcher's words on this node. Its ranks have the numbers of ours: slot x ranks a node + the local one."""
    fill = {
        "{nodes}": str(len(launch["slots"])),
        "{each}": str(launch["ranks_per_node"]),
        "{slot}": str(slot),
        "{master_addr}": launch["master_addr"],
        "{master_port}": str(launch["master_port"]),
        "{run}": f"{launch['run']}.{where.attempt}",
        "{save_dir}": launch["save_dir"],
    }
    return [
        *(place.filled(word, fill) for word in launch["launcher"]),
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.py"),
        where.run_dir,
        str(where.attempt),
        shim.BELOW_LAUNCHER,
    ]


def run(where: place.Place, launch: Mapping[str, Any], slot: int) -> int:
    """Start torchrun, stand by until it ends, and answer its code."""
    env = {"PYTHONUNBUFFERED": "1", **os.environ, **{k: v for k, v in where.env.items() if k not in _OF_A_RANK}}
    env["CROSS_SLURM_PROCID"] = str(slot)  # what ft_launcher goes by before anything that Slurm says
    signal.pthread_sigmask(signal.SIG_BLOCK, shim.PASSED_ON)  # one that comes before there is a torchrun waits for it
    try:
        child = shim.ColdRank(command(where, launch, slot), where.cwd, env)
    except OSError as error:
        leave_records(where, launch, slot, code=shim.REFUSED, refused=f"no process can be made: {error}")
        raise place.Refused(f"no process can be made: {error}") from error
    shim.pass_on_to(child)
    ended = child.wait()
    if ended:
        leave_records(where, launch, slot, **({"code": ended} if ended > 0 else {"signal": -ended}))
    return ended if ended >= 0 else 128 - ended


def leave_records(where: place.Place, launch: Mapping[str, Any], slot: int, **how: Any) -> None:
    """An exit record for each rank of this node that has left none."""
    each = launch["ranks_per_node"]
    for rank in range(slot * each, (slot + 1) * each):
        path = f"{place.attempt_dir(where.run_dir, where.attempt)}/exit/rank_{rank:05d}.json"
        shim.write_whole(path, shim.record(rank, where.node, where.attempt, **how), replace=False)


def main(arguments: list[str]) -> int:
    """`RUN_DIR ATTEMPT`; answers the exit code."""
    run_dir, attempt = os.path.abspath(arguments[0]), int(arguments[1])
    try:
        slot, node = place.identity(os.environ)
        launch = place.launched(run_dir, attempt)
        where = place.placed(run_dir, attempt, slot * launch["ranks_per_node"], node, launch)
        return run(where, launch, slot)
    except place.Refused as error:
        print(f"relight: not started: {error}", file=sys.stderr)
        return shim.REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
