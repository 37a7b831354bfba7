"""`relight checkpoints ...`: a run's saves, and what a save must hold. One file a command."""

from __future__ import annotations

import click

from supervisor.commands.checkpoints.adopt import command as adopt
from supervisor.commands.checkpoints.archive import command as archive
from supervisor.commands.checkpoints.listing import command as listing
from supervisor.commands.checkpoints.pin import command as pin
from supervisor.commands.checkpoints.prune import command as prune
from supervisor.commands.checkpoints.recover import command as recover
from supervisor.commands.checkpoints.restore import command as restore
from supervisor.commands.checkpoints.seal import command as seal
from supervisor.commands.checkpoints.show import command as show
from supervisor.commands.checkpoints.spec import command as spec
from supervisor.commands.checkpoints.unpin import command as unpin


@click.group(
    "checkpoints",
    epilog="""\b
Examples:
  relight checkpoints list demo
  relight checkpoints show demo a0003-i0000040
  relight checkpoints pin demo a0003-i0000040 --why "before the new data"
  relight checkpoints spec -o spec.json -- --num-layers 104 --hidden-size 18432 ...
  relight checkpoints show /ckpt/iter_0041200 --spec spec.json

\b
RUN is a name below ./relight-runs or the path of a run directory; ID is as
`list` shows it. Exit codes: 0 yes, 1 no, 2 bad usage, 3 not yet or unknown.""",
)
def command() -> None:
    """A run's saves: list, show, seal, keep, copy, let go, take in; and what a save must hold."""


for one in (listing, show, seal, pin, unpin, prune, archive, restore, recover, adopt, spec):
    command.add_command(one)
