"""`relight checkpoints spec`: what a save must hold, written down before there is one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from supervisor.errors import UserError

if TYPE_CHECKING:
    from supervisor.checkpoints.spec.document import Document

_ARGUMENTS_MAX = 16 << 20


@click.command(
    "spec",
    epilog="""\b
Examples:
  relight checkpoints spec -o spec.json -- --num-layers 104 --hidden-size 18432 \\
      --num-attention-heads 96 --padded-vocab-size 152064 --bf16 ...
  relight checkpoints spec -o spec.json --args-json args.json
  relight checkpoints spec -o spec.json --arguments-of /ckpt/iter_0000100
  relight checkpoints spec -o baseline.json --from /ckpt/iter_0000100

\b
Behind -- stands what the training script is given, whole: what plays no part
is left out and named. What would put other tensors into a save than are known
here is refused. A training script can write its own: supervisor.training.spec.
--from takes the save itself as the spec: a baseline for later saves, which
can't show what the first one lacked.""",
)
@click.argument("words", metavar="[-- MEGATRON ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--args-json", type=click.Path(), help="Megatron's arguments as JSON: vars(args) of the training script.")
@click.option("--arguments-of", type=click.Path(), help="Take the arguments that a Megatron save holds.")
@click.option("--from", "baseline", metavar="SAVE", type=click.Path(), help="Take what a save holds: a baseline only.")
@click.option("-o", "--output", type=click.Path(), help="A new file; without it, standard output.")
def command(
    words: tuple[str, ...], args_json: str | None, arguments_of: str | None, baseline: str | None, output: str | None
) -> int:
    """Write down what a save must hold, before there is one."""
    from supervisor.checkpoints.spec import told  # noqa: PLC0415 - `relight --help` need not wait for it

    if sum(bool(given) for given in (words, args_json, arguments_of, baseline)) != 1:
        raise UserError("give one of: Megatron's arguments behind --, --args-json, --arguments-of, --from")
    document = _document(words, args_json, arguments_of, baseline)
    if output is None:
        click.echo(document.to_bytes(), nl=False)
    else:
        try:
            with open(output, "xb") as file:
                file.write(document.to_bytes())
        except OSError as error:
            raise UserError(f"{output}: {error.strerror or error}") from None
    click.echo(f"{told.ORIGINS[document.origin]}: {told.summary(document)}", err=True)
    if document.ignored:
        names = ", ".join("--" + name.replace("_", "-") for name in document.ignored)
        click.echo(f"plays no part: {names}", err=True)
    return 0


def _document(
    words: tuple[str, ...], args_json: str | None, arguments_of: str | None, baseline: str | None
) -> Document:
    from supervisor.checkpoints.spec.baseline import baseline_of  # noqa: PLC0415
    from supervisor.checkpoints.spec.held import held  # noqa: PLC0415
    from supervisor.checkpoints.spec.megatron import document_of  # noqa: PLC0415
    from supervisor.checkpoints.spec.megatron_arguments import of_save, parse  # noqa: PLC0415
    from supervisor.checkpoints.spec.stated import read_stated  # noqa: PLC0415
    from supervisor.commands.checkpoints.held import look_at  # noqa: PLC0415

    if words:
        return document_of(parse(words))
    if args_json is not None:
        return document_of(_read_json(args_json))
    report = look_at(str(arguments_of or baseline))
    stated = read_stated(report.folder, report.structure)
    if report.verdict.value != "complete" or stated is None:
        why = report.findings[0] if report.findings else None
        raise UserError(f"{report.folder}: {report.verdict.value}{f': {why.code} {why.path}' if why else ''}")
    if arguments_of is not None:
        return document_of(of_save(stated), "arguments-in-save")
    about = {"save": os.path.basename(report.folder), "save_id": str(report.structure.save_id)}
    return baseline_of(held(report.structure, stated), about)


def _read_json(path: str) -> dict[str, Any]:
    from supervisor.checkpoints.posix import read_bounded  # noqa: PLC0415

    try:
        found = json.loads(read_bounded(path, _ARGUMENTS_MAX))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path}: it is no JSON") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: it must be an object: argument by name, as vars(args) has it")
    return found
