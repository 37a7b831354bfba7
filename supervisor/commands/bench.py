"""`relight bench`: the simulated-failure test bench."""

from __future__ import annotations

import click

from supervisor.commands.bench_inject import command as inject
from supervisor.commands.bench_prove import command as prove
from supervisor.commands.bench_sim import scenario, soak, swarm


@click.group("bench", epilog="\b\nExamples:\n  relight bench real\n  relight bench scenario ten-forty --story")
def command() -> None:
    """Faults on purpose: in real runs of the reference trainer (they need the extra `train`, torch) and in the simulated world."""


@command.command("real", epilog="\b\nExample:\n  relight bench real --warm")
@click.option("--folder", default="build/demo", show_default=True, type=click.Path(), help="Where the runs go.")
@click.option(
    "--warm/--cold", default=True, show_default=True, help="Fork ranks from a process that has torch imported."
)
@click.option("--json", "as_json", is_flag=True, help="A last line for programs.")
def real(folder: str, warm: bool, as_json: bool) -> int:
    """A real run is hurt five times and ends bit-equal to one that nobody touched. Exit 0: all held."""
    import shutil  # noqa: PLC0415 - `relight --help` need not wait for it

    from supervisor.bench import real as work  # noqa: PLC0415

    shutil.rmtree(folder, ignore_errors=True)
    return work.main(folder, warm=warm, as_json=as_json)


@command.command(
    "figures",
    epilog="\b\nExamples:\n  relight bench figures --repeats 1\n  relight bench figures --part earliest-error",
)
@click.option("--folder", default="build", show_default=True, type=click.Path(), help="Where bench.json goes.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1, 100), help="Each contest, so often.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["restart", "costs", "earliest-error", "checkpoints", "console", "slurm"]),
    help="Only this part; may be given again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what bench.json holds.")
def figures(folder: str, repeats: int, parts: tuple[str, ...], as_json: bool) -> int:
    """How quick, and what it costs, against a bare restart, torchrun, ripgrep, NVRx and our limits. Exit 0: every limit holds."""
    from supervisor.bench import figures as work  # noqa: PLC0415

    return work.main(folder, repeats=repeats, as_json=as_json, parts=parts or work.PARTS)


command.add_command(prove)
for simulated in (scenario, swarm, soak):
    command.add_command(simulated)
command.add_command(inject)
