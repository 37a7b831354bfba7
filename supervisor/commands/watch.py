"""`relight watch RUN`: the same controller, outside of the job."""

from __future__ import annotations

import sys

import click


@click.command(
    "watch",
    epilog="""\b
Examples:
  relight watch llm500b
  relight watch /shared/runs/llm500b --job 4711

\b
While the controller inside the job lives, it stands by; when that is gone (the
batch host is lost, its process has died for good) it takes over. It needs
nothing but the run directory, and the rights to ask Slurm. SIGTERM or Ctrl-C
ends the watch and not the run (relight stop does). Ways to keep it
running: relight-watch.service for systemd and watch.sbatch for Slurm itself, in
the folder that `relight watch --templates` names.
Exit codes: those of relight run; 0 when the run has ended.""",
)
@click.argument("run", required=False)
@click.option("--job", default="", metavar="ID", help="The Slurm job; default: the one that last ran the run.")
@click.option("--templates", is_flag=True, help="Say where the templates lie, and end.")
@click.option("--epoch-only", is_flag=True, hidden=True, help="One controller, without what restarts it.")
def command(run: str | None, job: str, templates: bool, epoch_only: bool) -> int:
    """Supervise RUN from outside its job; stand by while somebody else does."""
    from supervisor import app, parent  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.commands.standing_by import stand_by  # noqa: PLC0415
    from supervisor.errors import REFUSED_EXIT, UserError  # noqa: PLC0415
    from supervisor.guard import watch as guard  # noqa: PLC0415
    from supervisor.profiles import in_force  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415
    from supervisor.telling import targets  # noqa: PLC0415

    if templates:
        click.echo(_templates())
        return 0
    if not run:
        raise UserError("which run? Give its name or its directory. See: relight watch --help")
    where = RunDir.of(run).must_exist()
    if not epoch_only and (whom := targets.read(where.root)) is not None and whom.any:
        try:
            guard.start(where.root)  # the one that the job has started ends with it
        except UserError as error:
            click.echo(f"relight: {error}. It is watched without it", err=True)
    if epoch_only:
        seen = look(where.root)
        app.log_to_stderr()
        rules = in_force(seen.history, seen.settings.run.profile)
        parts = app.build(where, seen.settings, rules, job=job or app.OUTSIDE)
        return app.supervise(parts, again=True)
    words = [sys.executable, "-m", "supervisor", "watch", where.root, "--epoch-only", *(("--job", job) if job else ())]
    while True:
        code = stand_by(where.root, over_jobs=True)
        if code is not None:
            return code
        code = parent.keep(lambda _stop, _again: words, stops=False)
        if code != REFUSED_EXIT:
            return code


def _templates() -> str:
    from importlib import resources  # noqa: PLC0415

    return str(resources.files("supervisor") / "templates")
