"""`relight report RUN [INCIDENT]`: one incident as a document."""

from __future__ import annotations

import click

from supervisor.errors import UserError


@click.command(
    "report",
    epilog="""\b
Examples:
  relight report demo                        the newest incident, as Markdown
  relight report demo 2 --html -o incident-2.html""",
)
@click.argument("run")
@click.argument("incident", type=int, required=False)
@click.option("--html", "as_html", is_flag=True, help="One HTML file with pictures; no script, nothing is fetched.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Write it there (mode 0600) instead of printing it."
)
def command(run: str, incident: int | None, as_html: bool, output: str | None) -> int:
    """The report of an incident of RUN, ready for a post-mortem; the newest one where no number is given."""
    from supervisor.commands.asking import entries_of, look  # noqa: PLC0415
    from supervisor.durable import replace_whole  # noqa: PLC0415
    from supervisor.reporting import beside  # noqa: PLC0415
    from supervisor.telling.answers_told import sayings  # noqa: PLC0415
    from supervisor.telling.document import html, markdown  # noqa: PLC0415
    from supervisor.telling.report import report  # noqa: PLC0415

    seen = look(run)
    newest = seen.history.incidents[-1].number if seen.history.incidents else 1
    wanted = newest if incident is None else incident
    said = sayings(entries_of(seen.run.journal)).get(wanted, ())
    try:
        more = beside(seen.run, seen.history, wanted, said, seen.settings.run.tokens_per_sample)
        blocks = report(seen.history, wanted, seen.known_with_saves, more)
    except LookupError as error:
        raise UserError(str(error.args[0])) from None
    text = html(blocks) if as_html else markdown(blocks)
    if output is None:
        click.echo(text, nl=False)
        return 0
    try:
        replace_whole(output, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{output}: {error.strerror}") from None
    click.echo(f"{output}: incident {wanted} of {seen.history.run}")
    return 0
