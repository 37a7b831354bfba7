"""`relight doctor`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from supervisor.doctor import Check


@click.command("doctor", epilog="\b\nExamples:\n  relight doctor\n  relight doctor --config relight.toml --json")
@click.option("--config", type=click.Path(), help="The settings; relight.toml where it is there.")
@click.option("--run-dir", type=click.Path(), help="Where the run would lie. Default: ./relight-runs/NAME.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(config: str | None, run_dir: str | None, as_json: bool) -> int:
    """Look whether this installation and this machine are fit. Exit 1: something is wrong; unknown is not wrong."""
    from supervisor.doctor import examine, judge_installation  # noqa: PLC0415
    from supervisor.observe.installed import look_at_installation  # noqa: PLC0415

    path = config or ("relight.toml" if os.path.exists("relight.toml") else "")
    checks: tuple[Check, ...] = (judge_installation(look_at_installation()),)
    if checks[0].state == "ok":  # else what is imported next is not ours
        from supervisor.observe.machine import look  # noqa: PLC0415

        checks = examine(look(path, run_dir or ""))
    wrong = any(check.state == "not ok" for check in checks)
    if as_json:
        click.echo(json.dumps({"schema": 1, "ok": not wrong, "checks": [asdict(check) for check in checks]}))
    else:
        click.echo(told(checks))
    return 1 if wrong else 0


def told(checks: tuple[Check, ...]) -> str:
    """One line a check, and one that sums up."""
    from supervisor.telling.say import clean, count, names  # noqa: PLC0415

    lines = []
    for check in checks:
        right = f"  Right: {check.right}" if check.right else ""
        lines.append(f"{check.state:7}  {check.name:13}  {clean(check.seen, 500)}{right}")
    wrong = [check.name for check in checks if check.state == "not ok"]
    unknown = sum(check.state == "unknown" for check in checks)
    verdict = f"Not ok: {names(wrong, 16)}" if wrong else "Nothing is wrong"
    return "\n".join([*lines, f"{verdict}; {count(unknown, 'check')} unknown."])
