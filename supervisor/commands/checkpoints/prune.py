"""`relight checkpoints prune RUN`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from supervisor.errors import NOT_YET_EXIT, UserError

if TYPE_CHECKING:
    from policies.history import History


@click.command(
    "prune",
    epilog="""\b
Examples:
  relight checkpoints prune demo --dry-run
  relight checkpoints prune demo --keep 2

\b
Never deleted: the newest completed one, what is pinned, what the running or
planned attempt starts from, what is being written or can't be judged now.
Exit 3: nothing is deleted while the store can't be read or an incident is open.""",
)
@click.argument("run")
@click.option(
    "--keep", type=click.IntRange(1, 100), help="Completed ones to keep beside the pinned. [default: the profile's]"
)
@click.option("--dry-run", is_flag=True, help="Only say what would go, and why the others stay.")
def command(run: str, keep: int | None, dry_run: bool) -> int:
    """Delete saves of RUN that nothing needs, and say why the others stay."""
    from policies import retention  # noqa: PLC0415 - `relight --help` need not wait for it
    from policies.rules import Rules  # noqa: PLC0415
    from supervisor.commands.checkpoints.opening import open_run, settled  # noqa: PLC0415
    from supervisor.telling.saves import prune_text  # noqa: PLC0415

    opened = open_run(run)
    history = opened.seen.history
    number = keep or (Rules.model_validate_json(history.rules) if history.rules else Rules()).checkpoint.keep
    needed = needs(history)
    states = tuple(account.state for account in opened.accounts().saves)
    chosen = retention.choose(states, number, needed.keys())
    if opened.seen.alive and history.incident is not None and history.halted is None and not dry_run:
        raise UserError(
            f"{run}: incident {history.incident.number} is open, and its plan may need any of them: nothing is deleted. "
            f"See: relight plan {run}",
            NOT_YET_EXIT,
        )
    stay = {s.id: retention.stays_because(s, states, number, needed) for s in states if s.id not in chosen}
    if not dry_run:
        gone = settled(lambda: opened.store.retain(number, frozenset(needed)), f"{run}: not all is deleted")
        stay |= {one: "pinned a moment ago" for one in chosen if one not in gone}
        chosen = gone
    click.echo(prune_text(states, chosen, stay, done=not dry_run), nl=False)
    return 0


def needs(history: History) -> Mapping[str, str]:
    """Save -> why nothing may take it away: what the newest attempt was, the plan is, or a person wants it to be started from."""
    from policies.decisions import Recover  # noqa: PLC0415
    from supervisor.plan import needed_saves  # noqa: PLC0415

    found = dict.fromkeys(needed_saves(history), "it is being copied, or brought back from the archive")
    if history.choice.checkpoint:
        found[history.choice.checkpoint] = "a person chose it for the plan"
    if isinstance(history.decision, Recover) and history.decision.checkpoint:
        found[history.decision.checkpoint] = f"attempt {history.decision.attempt} is to start from it"
    if history.attempt is not None and history.attempt.checkpoint:
        found[history.attempt.checkpoint] = f"attempt {history.attempt.number} was started from it"
    return found
