"""`relight bench prove`: the acceptance, long form."""

from __future__ import annotations

import click


@click.command(
    "prove",
    epilog="\b\nExamples:\n  relight bench prove\n  relight bench prove random --seed 7\n  relight bench prove core --fresh",
)
@click.argument("which", nargs=-1, metavar="[ISSUE|NAME]...")
@click.option("--fresh", is_flag=True, help="Also those that are done for this commit.")
@click.option("--seed", default=1, show_default=True, help="What is drawn at random is drawn from it.")
@click.option("--folder", default="build/proof", show_default=True, type=click.Path(), help="Where the results go.")
def command(which: tuple[str, ...], fresh: bool, seed: int, folder: str) -> int:
    """Prove what is promised, on real and simulated runs. Exit 0: all held; 1: one did not; 3: the hour was over before that."""
    import signal  # noqa: PLC0415
    import sys  # noqa: PLC0415

    from supervisor.bench import prove as work  # noqa: PLC0415 - `relight --help` need not wait for it

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a run that is under way is ended first
    return work.main(which, folder, fresh=fresh, seed=seed, commit=work.commit_of())
