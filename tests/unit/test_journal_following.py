"""A reader that follows a journal gives what a reader of the whole gives, whatever happens to the files meanwhile."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.journal import journal
from supervisor.journal.entries import Stamped, Told
from supervisor.journal.following import Tail
from supervisor.journal.journal import FencedError, Journal, JournalDamagedError


class Reader:
    """What a follower knows; how often it had to begin again."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(str(folder))
        self.known: list[Stamped] = []
        self.again = 0

    def look(self) -> list[Stamped]:
        again, more = self._tail.more()
        self.again += again
        self.known = more if again else [*self.known, *more]
        return self.known


def begin(folder: Path) -> Journal:
    return Journal.begin(str(folder), lambda: 1.0, "h", 1)[0]


def test_only_what_is_added_is_read(tmp_path: Path) -> None:
    one = begin(tmp_path)
    reader = Reader(tmp_path)
    assert len(reader.look()) == 1
    for number in range(5):
        one.append([Told(str(number), "x")] * number, 2.0)
        assert reader.look() == journal.read(str(tmp_path))
    two = begin(tmp_path)
    assert reader.look() == journal.read(str(tmp_path))
    three = begin(tmp_path)
    three.append([Told("z", "x")], 3.0)
    assert reader.look() == journal.read(str(tmp_path))
    assert reader.again == 1
    for each in (one, two, three):
        each.close()


def test_an_empty_folder_and_then_a_journal(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.look() == []
    one = begin(tmp_path)
    assert reader.look() == journal.read(str(tmp_path))
    one.close()


def test_a_torn_end_is_read_when_it_is_whole(tmp_path: Path) -> None:
    one = begin(tmp_path)
    one.append([Told("a", "x")], 2.0)
    one.close()
    path = tmp_path / "000001.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    reader = Reader(tmp_path)
    assert len(reader.look()) == 1
    assert len(reader.look()) == 1
    path.write_bytes(whole)
    assert reader.look() == journal.read(str(tmp_path))
    assert reader.again == 1


def test_what_a_newer_epoch_makes_void_is_forgotten(tmp_path: Path) -> None:
    one = begin(tmp_path)
    one.close()
    path = tmp_path / "000001.jsonl"
    before = path.read_bytes()
    two = begin(tmp_path)  # follows the first line of epoch 1
    two.close()
    second = tmp_path / "000002.jsonl"
    kept = second.read_bytes()
    second.unlink()
    (tmp_path / "000002.claim").unlink()
    with path.open("ab") as file:  # epoch 1 writes one line more, which nobody will have seen
        _, line = journal._encode(before[6:38].decode(), Stamped(2, 1, 2.0, Told("void", "x")))
        file.write(line)
    reader = Reader(tmp_path)
    assert len(reader.look()) == 2
    second.write_bytes(kept)
    assert reader.look() == journal.read(str(tmp_path))
    assert [one.entry.kind for one in reader.known] == ["epoch-began", "epoch-began"]
    assert reader.again == 2


@pytest.mark.parametrize("damage", [lambda b: b[:60] + b"x" + b[61:], lambda b: b[100:], lambda b: b"{}\n" + b])
def test_damage_in_what_was_added_is_found(tmp_path: Path, damage) -> None:
    one = begin(tmp_path)
    one.append([Told(str(n), "x" * 50) for n in range(5)], 2.0)
    reader = Reader(tmp_path)
    reader.look()
    path = tmp_path / "000001.jsonl"
    at = path.stat().st_size
    one.append([Told("new", "x" * 50) for _ in range(5)], 3.0)
    one.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + damage(whole[at:]))
    with pytest.raises(JournalDamagedError):
        reader.look()
    path.write_bytes(whole)
    assert reader.look() == journal.read(str(tmp_path))


@pytest.mark.parametrize("seed", range(20))
def test_two_readers_agree_whoever_writes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writers = [begin(tmp_path)]
    reader = Reader(tmp_path)
    for turn in range(60):
        match chance.randrange(5):
            case 0:
                writers.append(begin(tmp_path))
            case 1 | 2:
                with suppress(FencedError, OSError):
                    chance.choice(writers).append([Told(str(turn), "x")] * chance.randrange(4), float(turn))
            case _:
                assert reader.look() == journal.read(str(tmp_path))
    assert reader.look() == journal.read(str(tmp_path))
    assert reader.again == 1
    for one in writers:
        one.close()
