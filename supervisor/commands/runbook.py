"""`relight runbook [REASON]`: the page for a reason, or the list of all pages."""

from __future__ import annotations

import sys
from difflib import get_close_matches

import click

from supervisor.errors import OWN_FAULT_EXIT
from supervisor.telling import runbooks
from supervisor.telling.say import clean


class NotWhole(click.ClickException):
    """This installation has no pages: our own fault, and no answer to what was asked."""

    exit_code = OWN_FAULT_EXIT


def _print(markdown: str) -> None:
    """Headings and lists on a terminal; plain text, as it lies in the file, anywhere else."""
    if not sys.stdout.isatty():
        click.echo(markdown, nl=False)
        return
    from rich.console import Console  # noqa: PLC0415  a pipe or a script need not wait for it
    from rich.markdown import Markdown  # noqa: PLC0415

    Console().print(Markdown(markdown))


def _unknown(reason: str) -> click.UsageError:
    near = get_close_matches(reason, runbooks.names(), n=1)
    hint = f"Did you mean {near[0]}?" if near else "`relight runbook` lists them."
    return click.UsageError(f"no runbook page {clean(reason, 64)!r}. {hint}")


@click.command(
    "runbook",
    epilog="""\b
Examples:
  relight runbook               all pages, one line each
  relight runbook node-lost     what was seen, what it means, what to do
  relight runbook README        how to read the pages at 3 a.m.
""",
)
@click.argument("reason", required=False)
def command(reason: str | None) -> None:
    """Print the page of the runbook for REASON; without it, the list of pages."""
    try:
        if reason is None:
            width = max(len(name) for name in runbooks.names())
            for name in runbooks.names():
                click.echo(f"{name:{width}}  {runbooks.seen(runbooks.find(name))}")
            return
        _print(runbooks.find(reason))
    except LookupError:
        raise _unknown(reason or "") from None
    except FileNotFoundError as missing:
        raise NotWhole(str(missing)) from missing
