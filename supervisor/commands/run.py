"""`relight run`: supervise a training command until it is done or halted."""

from __future__ import annotations

import os
import sys

import click

from supervisor.errors import UserError


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  relight run -- python train.py --steps 1000
  relight run --config relight.toml --profile auto -- python train.py --save {save_dir} --load {load_dir}

\b
{save_dir} and {load_dir} in the command are filled in for each attempt; the ranks find them in
RELIGHT_SAVE_DIR and RELIGHT_LOAD_DIR too. SIGTERM or Ctrl-C asks the ranks to save and stop.""",
)
@click.option("--cluster", type=click.Choice(["local"]), help="Which cluster. local: this machine as a small one.")
@click.option("--config", type=click.Path(), help="The settings; relight.toml where it is there.")
@click.option("--profile", help="What is tolerated: auto, approve, observe, or a path. Overrides the settings.")
@click.option("--run-dir", type=click.Path(), help="Default: ./relight-runs/NAME.")
@click.option("--epoch-only", is_flag=True, hidden=True, help="One controller, without the parent that restarts it.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
def command(
    cluster: str | None,
    config: str | None,
    profile: str | None,
    run_dir: str | None,
    epoch_only: bool,
    command_line: tuple[str, ...],
) -> int:
    """Start CMD once per rank, watch it, and bring it back when it stops."""
    from supervisor import app, parent  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.profiles import load_profile  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415
    from supervisor.settings import Settings, freeze, read_settings  # noqa: PLC0415

    path = config or ("relight.toml" if os.path.exists("relight.toml") else None)
    settings = read_settings(path) if path else Settings()
    changes: dict[str, object] = {"command": command_line, "cwd": settings.cwd or os.getcwd()}
    if cluster:
        changes["cluster"] = settings.cluster.model_copy(update={"kind": cluster})
    if profile:
        changes["run"] = settings.run.model_copy(update={"profile": profile})
    settings = settings.model_copy(update=changes)
    rules = load_profile(settings.run.profile)
    root = os.path.abspath(run_dir or os.path.join("relight-runs", settings.run.name))
    run = RunDir(root)
    run.create()
    settings = freeze(root, settings)
    if not epoch_only:
        return parent.keep([sys.executable, "-m", "supervisor", *sys.argv[1:2], "--epoch-only", *sys.argv[2:]])
    app.log_to_stderr()
    if not settings.command:
        raise UserError("no command: give it after --")
    return app.supervise(app.build(run, settings, rules))
