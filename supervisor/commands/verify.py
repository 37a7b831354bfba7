"""`relight verify PATH`: is this checkpoint whole, and may it be used?"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from supervisor.errors import UserError

if TYPE_CHECKING:
    from supervisor.checkpoints.reading.listed import Listed
    from supervisor.checkpoints.reading.verifying import Report
    from supervisor.checkpoints.spec.checking import SpecCheck
    from supervisor.checkpoints.spec.document import Document

EXITS = {"complete": 0, "broken": 1, "not_yet": 3}


@click.command(
    "verify",
    epilog="""\b
Examples:
  relight verify /ckpt/iter_0041200
  relight verify /ckpt
  relight verify --json --manifest manifest.json /ckpt/iter_0041200
  relight verify --spec spec.json /ckpt/iter_0041200
  relight verify --limit 500 /ckpt/iter_0041200

\b
PATH is the directory of one iteration, or the one above it: then what the
tracker names is checked, or the newest. Nothing is written, and nothing that
lies in the checkpoint is executed.
Exit codes: 0 complete, 1 broken, 3 not yet or unreadable now, 2 bad usage,
70 our own fault (it says nothing about the checkpoint).""",
)
@click.argument("path", metavar="PATH", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--manifest", type=click.Path(), help="What the files must be: a manifest.json that relight wrote.")
@click.option("--spec", "spec_path", type=click.Path(), help="What it must hold: see `relight checkpoints spec`.")
@click.option("--limit", type=click.FloatRange(min=0.001), help="Read at most so many MB a second.")
@click.option("--threads", type=click.IntRange(1, 256), default=4, show_default=True, help="Files read at once.")
def command(
    path: str, as_json: bool, manifest: str | None, spec_path: str | None, limit: float | None, threads: int
) -> int:
    """Check a Megatron, torch DCP or safetensors checkpoint to the last byte, without torch and without trust."""
    from supervisor.checkpoints.reading import told  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.checkpoints.reading.folder import NoCheckpointError, locate  # noqa: PLC0415
    from supervisor.checkpoints.reading.verifying import Options, unseen, verify_save  # noqa: PLC0415

    listed = _read_manifest(manifest) if manifest is not None else None
    document = _read_spec(spec_path) if spec_path is not None else None
    check = None
    try:
        located = locate(path)
        check = _spec_check(document, located.folder) if document is not None else None
        extra = (check,) if check is not None else ()
        options = Options(listed, threads=threads, rate=limit * 1e6 if limit else None, extra_checks=extra)
        with told.watching(quiet=as_json or not sys.stderr.isatty()) as watcher:
            report = verify_save(located, options, watcher)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such directory") from None
    except NoCheckpointError as error:
        raise UserError(f"{path}: no checkpoint here: {error}") from None
    except OSError as error:
        report = unseen(path, error)
    _tell(report, check, as_json=as_json)
    return EXITS[report.verdict.value]


def _tell(report: Report, check: SpecCheck | None, *, as_json: bool) -> None:
    from supervisor.checkpoints.reading import told  # noqa: PLC0415

    comparison = check.comparison if check is not None else None
    if check is None or comparison is None:
        if as_json:
            click.echo(json.dumps(told.answer(report)))
        else:
            told.show(report)
        return
    from supervisor.checkpoints.spec import told as spec_told  # noqa: PLC0415

    if as_json:
        # Findings are cut at 20 of a code; here every item stands.
        click.echo(json.dumps({**told.answer(report), "spec": spec_told.answer(comparison, check.document)}))
        return
    own = tuple(found for found in report.findings if not found.code.startswith(("SPEC_", "BASELINE")))
    told.show(replace(report, findings=own))
    click.echo()
    spec_told.show(spec_told.lines(comparison, check.document, every=False))


def _read_spec(path: str) -> Document:
    from supervisor.checkpoints.spec.document import read  # noqa: PLC0415

    try:
        return read(path)
    except UserError as error:
        raise UserError(f"--spec {error}") from None


def _spec_check(document: Document, folder: str) -> SpecCheck:
    from supervisor.checkpoints.spec.checking import SpecCheck  # noqa: PLC0415

    return SpecCheck(document, folder)


def _read_manifest(path: str) -> Listed:
    from supervisor.checkpoints.manifest import UnsoundError  # noqa: PLC0415
    from supervisor.checkpoints.reading.listed import read_listed  # noqa: PLC0415

    try:
        return read_listed(path)
    except OSError as error:
        raise UserError(f"--manifest {path}: {error.strerror or error}") from None
    except UnsoundError as error:
        raise UserError(f"--manifest {path}: {error}") from None
