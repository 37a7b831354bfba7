"""`relight stop RUN`."""

from __future__ import annotations

import click


@click.command(
    "stop",
    epilog="""\b
Examples:
  relight stop demo
  relight stop demo --after-checkpoint --because "the cooling is serviced at noon"
  relight stop llm500b --next-job --because "new spares"

\b
No fault, no strike. The ranks save at the next step and end; a training that does
not ask for stops is stopped right after a save with --after-checkpoint. With
--next-job the run goes on by itself in its next Slurm job, without the nodes that
are barred, and with as many spares as were asked for; else when it is started
again. What stops the run at once, without a save, is relight halt.""",
)
@click.argument("run")
@click.option("--after-checkpoint", is_flag=True, help="Wait for the next regular save to be completed; make no other.")
@click.option("--next-job", is_flag=True, help="Go on in the next job of the run (Slurm).")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, after_checkpoint: bool, next_job: bool, why: str) -> int:
    """Have RUN save and stop, to go on later or in its next job."""
    from supervisor.commands.asking import ask, look  # noqa: PLC0415

    return ask(look(run), "stop", why=why, after_save=after_checkpoint, next_job=next_job)
