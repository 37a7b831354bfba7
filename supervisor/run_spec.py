"""The spec of a run, taken up at its first start and frozen with it: later saves are judged as the first ones were."""

from __future__ import annotations

import os

from supervisor.checkpoints.seal_spec import SpecFile
from supervisor.checkpoints.spec import document as documents
from supervisor.checkpoints.spec.document import Document
from supervisor.durable import create_whole, replace_whole
from supervisor.errors import UserError
from supervisor.settings import CheckpointSettings, frozen

FILE = "spec.json"


def spec_of(run_root: str, settings: CheckpointSettings) -> SpecFile | None:
    """The frozen spec; None where the run has none."""
    return SpecFile(os.path.join(run_root, FILE), settings.spec_digest) if settings.spec_digest else None


def take_up(run_root: str, settings: CheckpointSettings, folder: str) -> CheckpointSettings:
    """The settings with the spec's path and digest, and a copy in the run directory. Raises UserError.

    `folder`: where relight.toml lies, from which `spec` is counted. At later starts the frozen copy is what counts: the
    file may be gone by then, but it may not be another one.
    """
    before = _before(run_root)
    if not settings.spec:
        if settings.spec_digest:
            raise UserError("checkpoints.spec_digest: there is no checkpoints.spec that it could be of")
        if before:
            raise _changed(before, "")
        return settings
    path = os.path.join(folder, settings.spec)
    found = _read(path, gone_is_fine=bool(before))
    digest = found.digest if found is not None else before or ""
    if settings.spec_digest not in {"", digest}:
        raise UserError(f"checkpoints.spec = {path}: its digest is {digest}, not the one of checkpoints.spec_digest")
    if before is not None and before != digest:
        raise _changed(before, digest)
    if found is not None:
        _keep(run_root, found)
    return settings.model_copy(update={"spec": path, "spec_digest": digest})


def _before(run_root: str) -> str | None:
    """The digest that the run was started with; None at the first start."""
    return frozen(run_root).checkpoints.spec_digest if os.path.exists(os.path.join(run_root, "settings.json")) else None


def _read(path: str, *, gone_is_fine: bool) -> Document | None:
    if not os.path.exists(path):
        if gone_is_fine:
            return None
        raise UserError(
            f"checkpoints.spec = {path}: there is no such file. Write it before the first start: relight checkpoints spec, "
            "or SaveSpec of supervisor.training.spec in the training script"
        )
    try:
        return documents.read(path)
    except UserError as error:
        raise UserError(f"checkpoints.spec = {error}") from None


def _keep(run_root: str, found: Document) -> None:
    """Copy it. Before the settings are frozen nothing was judged by an older copy, which a start that failed has left."""
    path, data = os.path.join(run_root, FILE), found.to_bytes()
    try:
        if not create_whole(path, data) and not os.path.exists(os.path.join(run_root, "settings.json")):
            replace_whole(path, data)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _changed(before: str, now: str) -> UserError:
    """Saves that were completed are held against the first spec, and none of them against another."""
    shown = [digest[:12] or "none" for digest in (before, now)]
    return UserError(
        f"checkpoints.spec has changed since this run began ({shown[0]} -> {shown[1]}): a run keeps its spec ({FILE} in the "
        "run directory). Put it back, or start another run (another --run-dir) from its newest save: relight checkpoints adopt"
    )
