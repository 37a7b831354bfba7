"""The command line. A command's module is imported only when it is called, so that `relight --help` stays quick."""

from __future__ import annotations

import sys
import traceback
from difflib import get_close_matches
from importlib import import_module

import click

from supervisor.errors import OWN_FAULT_EXIT, UserError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("supervisor.commands.run", "Supervise a training command until it is done or halted."),
    "sbatch": ("supervisor.commands.sbatch", "Submit a job script, with spares, to be supervised."),
    "watch": ("supervisor.commands.watch", "The same controller outside of the job; it stands by, and takes over."),
    "status": ("supervisor.commands.status", "What the run is doing now."),
    "explain": ("supervisor.commands.explain", "The story of the run, or of one incident."),
    "plan": ("supervisor.commands.plan", "The open plan; change it before you approve it."),
    "approve": ("supervisor.commands.approve", "Say yes to the open plan."),
    "refuse": ("supervisor.commands.refuse", "Say no to the open plan."),
    "pause": ("supervisor.commands.pause", "Start and stop nothing until resumed; keep watching."),
    "resume": ("supervisor.commands.resume", "Lift a pause or a halt."),
    "stop": ("supervisor.commands.stop", "Save and stop, to go on later or in the next job."),
    "halt": ("supervisor.commands.halt", "Stop the attempt and start nothing more."),
    "unbar": ("supervisor.commands.unbar", "Let a repaired node be a spare again."),
    "interval": ("supervisor.commands.interval", "How often to save."),
    "diagnose": ("supervisor.commands.diagnose", "The first cause in a folder of logs, of any job."),
    "verify": (
        "supervisor.commands.verify",
        "Is a checkpoint whole? Any Megatron or DCP directory, down to the last byte.",
    ),
    "checkpoints": (
        "supervisor.commands.checkpoints",
        "A run's saves: list, show, seal, pin, prune, archive, restore; what a save must hold.",
    ),
    "report": ("supervisor.commands.report", "An incident as a document, ready for a post-mortem."),
    "drill": ("supervisor.commands.drill", "Try the way back, from the store or the archive, in a scratch place."),
    "guard": ("supervisor.commands.guard", "Page when a controller is gone, stands, or nobody was told."),
    "runbook": ("supervisor.commands.runbook", "The page for a reason."),
    "console": ("supervisor.commands.console", "All runs over HTTP: see, approve, refuse; metrics."),
    "token": ("supervisor.commands.token", "Who may use the console."),
    "doctor": ("supervisor.commands.doctor", "Is this installation and this machine fit?"),
    "replay": ("supervisor.commands.replay", "Each decision again, from the journal alone."),
    "bench": ("supervisor.commands.bench", "Faults on purpose, real and simulated; what is promised, proved."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; their one-line helps stand in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of COMMANDS."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module. Raises click.UsageError for a name that is nearly one."""
        if cmd_name not in COMMANDS:
            near = get_close_matches(cmd_name, COMMANDS, 1)
            if near:
                ctx.fail(f"No such command '{cmd_name}'. Did you mean {near[0]}?")
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name][0]}.command is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  relight run --config relight.toml -- python train.py
  relight status demo
  relight explain demo 2
  relight approve demo --plan 8f3a1c

\b
RUN is a name below ./relight-runs or the path of a run directory.
Exit codes: 0 yes, 1 no, 2 bad usage, 3 not yet or unknown, 4 refused, 70 our own fault; run also 93: halted.""",
)
@click.version_option(package_name="relight", prog_name="relight")
def group() -> None:
    """Brings a stopped training run back to its next good update."""


def main() -> None:
    """The console script. One line for a mistake, no traceback."""
    try:
        code = group.main(prog_name="relight", standalone_mode=False)
    except UserError as error:
        click.echo(f"relight: {error}", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        text = error.format_message()
        if isinstance(error, click.UsageError) and error.ctx:
            text += "" if text.endswith((".", "?")) else "."
            text += f" See: {error.ctx.command_path} --help"
        click.echo(f"relight: {text}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - Python's own exit code, 1, would be taken for a verdict
        traceback.print_exc()
        click.echo(f"relight: our own fault: {type(error).__name__}: {error}", err=True)
        sys.exit(OWN_FAULT_EXIT)
    sys.exit(code if isinstance(code, int) else 0)
