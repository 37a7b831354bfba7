"""What can happen to a supervised run on the test cluster: to its ranks, nodes and controllers, and to slurmctld."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from supervisor.bench.slurmbed import ranks
from supervisor.bench.slurmbed.supervised import SlurmRun

STRUCK: Final = 11
"""The step at which a fault is done: between two saves."""
SHORT_S: Final = 10.0
LONG_S: Final = 60.0
"""How long slurmctld is away."""
KILLS: Final = 5
"""So many controllers may die within ten minutes before their parent waits (`supervisor/parent.py`)."""


def rank_killed(run: SlurmRun) -> None:
    """One rank is killed; its node is well."""
    os.kill(ranks.find(run, 2).pid, signal.SIGKILL)


def stepd_killed(run: SlurmRun) -> None:
    """The slurmstepd of the ranks of one node is killed alone: its tasks go on, and nobody reports them."""
    os.kill(ranks.parent(ranks.find(run, 2).shim), signal.SIGKILL)


def node_crash(run: SlurmRun) -> None:
    """A node loses power: slurmd, slurmstepd and every task are gone at once."""
    run.bed.crash_node(run.slots()[2])


def node_hang(run: SlurmRun) -> None:
    """A node stands still, and goes on when its slot has long been given away."""
    node = run.slots()[2]
    run.bed.hang_node(node)
    run.wait_closed(1)
    run.bed.revive_node(node)


def two_nodes(run: SlurmRun) -> None:
    """Two nodes at once."""
    for node in (run.slots()[1], run.slots()[3]):
        run.bed.crash_node(node)


def dead_spare(run: SlurmRun) -> None:
    """The spare that would be taken is lost in the same moment."""
    spare = min(set(run.bed.job_nodes(run.at)) - set(run.slots()))
    run.bed.crash_node(spare)
    run.bed.crash_node(run.slots()[2])


def same_node_twice(run: SlurmRun) -> None:
    """A rank dies on one node, and after the restart in place another time."""
    rank_killed(run)
    run.wait_closed(1)
    run.wait_step(STRUCK + 8)
    rank_killed(run)


def controller_killed(run: SlurmRun) -> None:
    """SIGKILL of the controller in the job; its parent starts the next one."""
    os.kill(controller(run), signal.SIGKILL)


def controllers_killed_training(run: SlurmRun) -> None:
    """Five controllers in a row die while the run trains."""
    for number in range(KILLS):
        run.wait_step(STRUCK + 5 * number)
        controller_killed(run)
        run.until(lambda: controller(run), "another controller", 60)


def controllers_killed_recovering(run: SlurmRun) -> None:
    """Five controllers die in a recovery: once the incident is open, stopped, launched anew, loaded, and at the first good step."""
    rank_killed(run)
    for moment in ("confirmed", "stopped", "relaunched", "loaded", "next_good"):
        run.until(lambda m=moment: _moment(run, m), moment, 120)  # type: ignore[misc]
        controller_killed(run)
        run.until(lambda: controller(run), "another controller", 60)


def slurmctld_away(run: SlurmRun, seconds: float = SHORT_S) -> None:
    """Slurmctld is away for a while, and a rank dies meanwhile."""
    run.bed.stop_controller()
    rank_killed(run)
    run.until(lambda: bool(run.history().incidents), "an incident", 60)
    time.sleep(seconds)  # how long it is away is the fault itself
    run.bed.start_controller()


def slurmctld_away_long(run: SlurmRun) -> None:
    """For a minute, in a recovery."""
    slurmctld_away(run, LONG_S)


def slurmctld_away_training(run: SlurmRun) -> None:
    """For a minute, while the run trains: nothing is to be seen of it."""
    run.bed.stop_controller()
    time.sleep(LONG_S)  # how long it is away is the fault itself
    run.bed.start_controller()


def slurmctld_restarted(run: SlurmRun) -> None:
    """Slurmctld is killed and started again, and a rank dies."""
    run.bed.kill_controller()
    run.bed.start_controller()
    rank_killed(run)


def batch_host(run: SlurmRun) -> None:
    """The batch host is lost with the controller on it; another one stands by outside."""
    run.bed.crash_node(run.slots()[0])


def controller(run: SlurmRun) -> int:
    """The controller's process on the batch host; 0 where none is."""
    for pid in run.bed.node_pids(run.bed.job_nodes(run.at)[0]):
        if "--epoch-only" in ranks.words(pid):
            return pid
    return 0


def _moment(run: SlurmRun, name: str) -> bool:
    found = run.history().incidents
    return bool(found) and getattr(found[0].times, name) is not None
