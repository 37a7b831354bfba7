"""`relight checkpoints seal RUN ID`."""

from __future__ import annotations

import click


@click.command(
    "seal",
    epilog="""\b
Examples:
  relight checkpoints seal demo a0003-i0000040

\b
No controller is needed; with one at work both end with the same verdict.
Exit codes: 0 completed, 1 broken or abandoned for good, 3 not yet: it is not
finished, or can't be judged now.""",
)
@click.argument("run")
@click.argument("checkpoint", metavar="ID")
def command(run: str, checkpoint: str) -> int:
    """Check a save of RUN to the last byte now, and settle what it is."""
    from policies.facts import CheckpointPhase  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.commands.checkpoints.opening import find, open_run  # noqa: PLC0415
    from supervisor.telling.saves import state_text  # noqa: PLC0415
    from supervisor.telling.say import clean  # noqa: PLC0415

    opened = open_run(run)
    account = find(opened.accounts(), checkpoint, run)
    state = opened.store.seal(account.state.id)
    click.echo(f"{state.id}: {state_text(state, account.began_at, opened.seen.now)}")
    for reason in state.reasons[1:]:
        click.echo(f"  {clean(reason)}")
    for_good = {CheckpointPhase.BROKEN: 1, CheckpointPhase.ABANDONED: 1, CheckpointPhase.COMPLETED: 0}
    return for_good.get(state.phase, 3)
