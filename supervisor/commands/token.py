"""`relight token add|list|remove`: who may use the console."""

from __future__ import annotations

import time

import click

from supervisor.console import tokens
from supervisor.telling.say import stamp

FILE = click.option("--tokens", "path", default="", type=click.Path(), help="The file of tokens.")


@click.group(
    "token",
    epilog="""\b
Examples:
  relight token add li.wei --role approver
  relight token add prometheus
  relight token list
  relight token remove li.wei""",
)
def command() -> None:
    """Tokens of `relight console`. A viewer reads; an approver also says yes and no."""


@command.command(
    "add",
    epilog="\b\nExamples:\n  relight token add li.wei --role approver\n  relight token add prometheus --days 365",
)
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "approver"]), default="viewer", show_default=True)
@click.option("--days", type=click.IntRange(0, 3650), default=0, help="It expires after so many days; 0: never.")
@FILE
def add(name: str, role: str, days: int, path: str) -> int:
    """Make a token for NAME. It is shown this once; only its hash is kept."""
    token = tokens.add(path or tokens.default_path(), name, tokens.Role(role), time.time(), days)
    click.echo(token)
    click.echo(f"This is shown once. {name} may act as {role}. Take it away: relight token remove {name}", err=True)
    return 0


@command.command("list", epilog="\b\nExamples:\n  relight token list\n  relight token list --tokens tokens.json")
@FILE
def list_(path: str) -> int:
    """Who has a token. Exit 1: nobody."""
    grants = tokens.read_grants(path or tokens.default_path())
    for grant in grants:
        until = f"until {stamp(grant.expires)}" if grant.expires is not None else "does not expire"
        click.echo(f"{grant.name}  {grant.role}  since {stamp(grant.added)}  {until}")
    if not grants:
        click.echo("Nobody has a token. See: relight token add --help", err=True)
    return 0 if grants else 1


@command.command("remove", epilog="\b\nExample:\n  relight token remove li.wei")
@click.argument("name")
@FILE
def remove(name: str, path: str) -> int:
    """Take the token of NAME away. A console that runs knows it within a second."""
    tokens.remove(path or tokens.default_path(), name)
    click.echo(f"{name} has no token any more")
    return 0
