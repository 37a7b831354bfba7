"""`relight bench scenario|swarm|soak`: the simulated world."""

from __future__ import annotations

import click


@click.command(
    "scenario",
    epilog="\b\nExamples:\n  relight bench scenario list\n  relight bench scenario ten-forty --story\n"
    "  relight bench scenario all --json",
)
@click.argument("name")
@click.option("--seed", default=0, show_default=True, help="What is drawn is drawn from it.")
@click.option("--json", "as_json", is_flag=True, help="One line a run, for programs.")
@click.option("--story", is_flag=True, help="The product's own account of it.")
def scenario(name: str, seed: int, as_json: bool, story: bool) -> int:
    """Tell a scenario in the simulated world. NAME: `list`, `all`, or one of the list. Exit 1: something did not hold."""
    from supervisor.bench import telling  # noqa: PLC0415 - `relight --help` need not wait for it

    return telling.scenarios(name, seed, as_json=as_json, story=story)


@click.command("swarm", epilog="\b\nExample:\n  relight bench swarm --seeds 0-199 --jobs 2")
@click.option("--seeds", default="0-99", show_default=True, metavar="A-B", help="First and last seed.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 256), help="Processes.")
def swarm(seeds: str, jobs: int) -> int:
    """Draw worlds, faults and profiles from seeds. Exit 1: a promise was broken, or a run got nowhere."""
    from supervisor.bench import telling  # noqa: PLC0415

    return telling.swarm(seeds, jobs)


@click.command("soak", epilog="\b\nExample:\n  relight bench soak --minutes 30")
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(0.01, 10_000), help="So long.")
@click.option("--begin", default=None, type=int, help="The first seed; without it, by the clock.")
def soak(minutes: float, begin: int | None) -> int:
    """Swarm until the time is over, and print the seeds that fail. Exit 1: some did."""
    from supervisor.bench import telling  # noqa: PLC0415

    return telling.soak(minutes, begin)
