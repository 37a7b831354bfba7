"""What the commands share that look into a run's store: the run, its store, and the save that was named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from slurm.cluster import Unreadable
from supervisor.checkpoints import account, posix
from supervisor.checkpoints.account import Account, Accounts
from supervisor.checkpoints.archive import Archive
from supervisor.checkpoints.archive.carrying import Progress, no_progress
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId, Tree
from supervisor.commands.asking import Seen, look
from supervisor.errors import NOT_YET_EXIT, UserError
from supervisor.stores import archive_of, open_store, root_of
from supervisor.telling.saves import Archived, Listing, roles_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """A run and its store. Nothing is made and nothing is changed by opening it."""

    seen: Seen
    store: PosixStore
    tree: Tree

    @property
    def name(self) -> str:
        """The run's own name."""
        return self.seen.settings.run.name

    def accounts(self) -> Accounts:
        """All that the store says. Raises UserError (exit 3) while it can't be read."""
        found = account.read(self.tree.root, self.store)
        if isinstance(found, Unreadable):
            raise UserError(f"{self.name}: the checkpoint store can't be read now: {found.why}", NOT_YET_EXIT)
        return found

    def listing(self) -> Listing:
        """All that is told of its saves."""
        free = self.store.free_bytes()
        return Listing(self.name, self.accounts(), roles_of(self.seen.history), self.seen.now, free, self.archived())

    def archive(self, progress: Progress = no_progress) -> Archive | None:
        """Its archive; None where it has none. Raises UserError."""
        return archive_of(self.seen.settings, self.store, progress)

    def must_have_archive(self, progress: Progress) -> Archive:
        """Raises UserError where it has none, or one that can't be opened here."""
        found = self.archive(progress)
        if found is None:
            raise UserError(
                f"{self.name}: it has no archive: [archive] place of relight.toml names one at the first start"
            )
        return found

    def archived(self) -> Archived | None:
        """What its archive shows now; each call there has a deadline. An archive that can't be opened here hides no saves."""
        place = self.seen.settings.archive.place
        try:
            archive = self.archive()
        except UserError as error:
            return Archived(place, Unreadable(str(error)))
        return Archived(place, archive.scan()) if archive is not None else None


def open_run(name: str) -> Opened:
    """The store of RUN. Raises UserError."""
    seen = look(name)
    return Opened(seen, open_store(seen.run, seen.settings), Tree(root_of(seen.run, seen.settings)))


def save_id(given: str) -> str:
    """ID as a person typed it. Raises UserError."""
    try:
        return str(SaveId.parse(given))
    except ValueError as error:
        raise UserError(str(error)) from None


def find(accounts: Accounts, given: str, run: str) -> Account:
    """The save of this id. Raises UserError where there is none, or no more."""
    wanted = save_id(given)
    for one in accounts.saves:
        if one.state.id == wanted:
            return one
    gone = any(one.id == wanted for one in accounts.deleted)
    what = "was deleted" if gone else "there is no such save"
    raise UserError(f"{wanted}: {what}. See: relight checkpoints list {run}")


def settled(work: Callable[[], T], what: str) -> T:
    """Do it; an error of the file system becomes one line (exit 3). Raises UserError."""
    try:
        return work()
    except OSError as error:
        raise UserError(f"{what}: {posix.why(error)}", NOT_YET_EXIT) from None
