"""What lies at a path: the part of `relight checkpoints show` and `spec` that needs no run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from supervisor.errors import UserError

if TYPE_CHECKING:
    from supervisor.checkpoints.reading.verifying import Report


def look_at(path: str) -> Report:
    """What lies at a path: metadata and sizes only. Raises UserError."""
    from supervisor.checkpoints.reading.folder import NoCheckpointError  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.checkpoints.reading.verifying import Options, verify  # noqa: PLC0415

    try:
        return verify(path, Options(content=False))
    except NoCheckpointError as error:
        raise UserError(f"{path}: no checkpoint here: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def show_path(path: str, spec_path: str | None, *, as_json: bool) -> int:
    """Print what a save holds or a spec asks for, or lay one beside the other; the exit code. Raises UserError."""
    from supervisor.checkpoints.reading.findings import Weight  # noqa: PLC0415
    from supervisor.checkpoints.spec import document as documents  # noqa: PLC0415
    from supervisor.checkpoints.spec import told  # noqa: PLC0415
    from supervisor.checkpoints.spec.compare import compare  # noqa: PLC0415
    from supervisor.checkpoints.spec.held import held  # noqa: PLC0415
    from supervisor.checkpoints.spec.stated import read_stated  # noqa: PLC0415

    if as_json and spec_path is None:
        raise click.UsageError("--json is only there with --spec, or with RUN ID")
    if os.path.isfile(path) and spec_path is None:
        told.show(told.asking(documents.read(path)))
        return 0
    document = documents.read(spec_path) if spec_path is not None else None
    report = look_at(path)
    if report.verdict.value != "complete":
        for finding in (one for one in report.findings if one.weight is not Weight.NOTE):
            click.echo(f"{report.verdict.value}: {finding.code} {finding.path}: {finding.detail}", err=True)
    found = held(report.structure, read_stated(report.folder, report.structure))
    if document is None:
        told.show(told.holding(found))
        return 0 if found.is_known else 3
    comparison = compare(document, found)
    if as_json:
        click.echo(json.dumps(told.answer(comparison, document)))
    else:
        told.show(told.lines(comparison, document, every=True))
    unread = not comparison.known or found.facts is None
    return 1 if comparison.differences else 3 if unread else 0
