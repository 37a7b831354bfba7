"""`relight watch RUN`: the same controller, outside of the job."""

from __future__ import annotations

import sys
import time

import click

LOOK_S = 2.0
"""How often the lease is looked at: a file system announces nothing. One of another host counts as gone after 15 s."""


@click.command(
    "watch",
    epilog="""\b
Examples:
  relight watch llm500b
  relight watch /shared/runs/llm500b --job 4711

\b
While the controller inside the job lives, it stands by; when that is gone (the
batch host is lost, its process has died for good) it takes over. It needs
nothing but the run directory, and the rights to ask Slurm. Ways to keep it
running: relight-watch.service for systemd and watch.sbatch for Slurm itself, in
the folder that `relight watch --templates` names.
Exit codes: those of relight run; 0 when the run has ended.""",
)
@click.argument("run", required=False)
@click.option("--job", default="", metavar="ID", help="The Slurm job; default: the one that last ran the run.")
@click.option("--templates", is_flag=True, help="Say where the templates lie, and end.")
@click.option("--epoch-only", is_flag=True, hidden=True, help="One controller, without what restarts it.")
@click.option("--stop-asked", default="", hidden=True, help="A stop was asked for before this controller began.")
def command(run: str | None, job: str, templates: bool, epoch_only: bool, stop_asked: str) -> int:
    """Supervise RUN from outside its job; stand by while somebody else does."""
    from supervisor import app, parent  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.errors import REFUSED_EXIT, UserError  # noqa: PLC0415
    from supervisor.profiles import load_profile  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415
    from supervisor.settings import frozen  # noqa: PLC0415

    if templates:
        click.echo(_templates())
        return 0
    if not run:
        raise UserError("which run? Give its name or its directory. See: relight watch --help")
    where = RunDir.of(run).must_exist()
    if epoch_only:
        settings = frozen(where.root)
        app.log_to_stderr()
        parts = app.build(where, settings, load_profile(settings.run.profile), job=job or app.OUTSIDE)
        return app.supervise(parts, stop_asked, again=True)
    words = [sys.executable, "-m", "supervisor", "watch", where.root, "--epoch-only", *(("--job", job) if job else ())]
    while True:
        code = _stand_by(where.root)
        if code is not None:
            return code
        code = parent.keep(lambda stop, _again: [*words, *(("--stop-asked", stop) if stop else ())])
        if code != REFUSED_EXIT:
            return code


def _stand_by(root: str) -> int | None:
    """Wait while another controller lives; None when it is our turn, else the exit code: the run is over."""
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.journal.lease import is_alive, read_holder  # noqa: PLC0415
    from supervisor.loop import HALTED_EXIT  # noqa: PLC0415

    said = False
    while True:
        seen = look(root)
        if not seen.alive:
            if seen.history.ended:
                click.echo(f"{seen.history.run}: {seen.history.ended}", err=True)
                return 0
            if seen.history.halted is not None:
                reason = seen.history.halted.reason.value
                click.echo(f"{seen.history.run}: halted ({reason}). See: relight runbook {reason}", err=True)
                return HALTED_EXIT
            return None
        holder = read_holder(seen.run.path("lease"))
        if not said and holder is not None:
            said = True
            click.echo(f"relight: standing by; controller {holder.pid} on {holder.host} is at work", err=True)
        while holder is not None and is_alive(holder, time.time()):
            time.sleep(LOOK_S)
            holder = read_holder(seen.run.path("lease"))


def _templates() -> str:
    from importlib import resources  # noqa: PLC0415

    return str(resources.files("supervisor") / "templates")
