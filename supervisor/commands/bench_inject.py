"""`relight bench inject KIND --at STEP --rank R RUN`: a fault for a run of the reference trainer, on purpose."""

from __future__ import annotations

from itertools import pairwise

import click

KINDS = ("exception", "nan", "hang", "exit3", "sigkill")
"""As in `supervisor/bench/trainer/injected.py`; `relight --help` need not wait for its imports."""
MODULE = "supervisor.bench.trainer"


@click.command(
    "inject",
    epilog="\b\nExamples:\n  relight bench inject nan --at 50 --rank 3 demo\n  relight bench inject sigkill --at 80 --rank 0 demo",
)
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--at", "step", required=True, type=click.IntRange(1, 10**12), help="The step at which it fires.")
@click.option("--rank", required=True, type=click.IntRange(0, 10**7), help="The rank that it hits.")
@click.argument("run")
def command(kind: str, step: int, rank: int, run: str) -> int:
    """Hurt RUN at a step to come: nan poisons a sample for good, the others fire once. Only for the reference trainer."""
    from supervisor.bench.trainer import injected  # noqa: PLC0415
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.errors import UserError  # noqa: PLC0415

    seen = look(run)
    if not _is_reference(seen.settings.command):
        raise UserError(
            f"{seen.history.run}: its command is not the reference trainer ({MODULE}); nothing is injected", 4
        )
    world = seen.settings.shape().world
    if rank >= world:
        raise UserError(f"--rank {rank}: the layout has ranks 0 to {world - 1}")
    attempt = seen.status.view.attempt if seen.status else None
    if attempt is not None and step <= attempt.frontier + 1:
        raise UserError(f"--at {step}: step {attempt.frontier} is done and the next one may be; give a later step", 4)
    name = injected.file(seen.run.root, kind, step, rank, seen.now)
    click.echo(f"{kind} at step {step} on rank {rank}: inject/{name}")
    return 0


def _is_reference(argv: tuple[str, ...]) -> bool:
    """`python -m supervisor.bench.trainer ...`, with options of the interpreter before it or not."""
    by_name = ("-m", MODULE) in pairwise(argv)
    return by_name or any(word.endswith(f"{MODULE.replace('.', '/')}/__main__.py") for word in argv[:3])
