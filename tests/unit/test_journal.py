"""The journal: what a crash, a fence, damage and a full disk leave of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import training

from policies.history import History
from supervisor.fold import fold_all
from supervisor.journal.entries import Entry, EpochBegan, Paused, Resumed, RunStarted
from supervisor.journal.journal import FencedError, Journal, JournalDamagedError, read, segments

STARTED = RunStarted("demo", "auto", 1, 1, 3, 1)


def begin(folder: Path, at: float = 1.0) -> Journal:
    return Journal.begin(str(folder), lambda: at, "h", 1)[0]


def three(folder: Path) -> Path:
    """A segment with a header and three entries."""
    journal = begin(folder)
    journal.append([STARTED], 2.0)
    journal.append([Paused("li", "w\u00fc"), Resumed("li", "x")], 3.0)
    journal.close()
    return folder / "000001.jsonl"


def entries(folder: Path) -> list[Entry]:
    return [s.entry for s in read(str(folder))]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    three(tmp_path)
    stamped = read(str(tmp_path))
    assert [s.number for s in stamped] == [1, 2, 3, 4]
    assert [s.at for s in stamped] == [1.0, 2.0, 3.0, 3.0]
    assert [s.epoch for s in stamped] == [1] * 4
    assert isinstance(stamped[0].entry, EpochBegan)
    assert [s.entry for s in stamped[1:]] == [STARTED, Paused("li", "w\u00fc"), Resumed("li", "x")]


def test_nothing_to_write_writes_nothing(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    size = (tmp_path / "000001.jsonl").stat().st_size
    assert journal.append([], 2.0) == []
    assert (tmp_path / "000001.jsonl").stat().st_size == size
    journal.close()


def test_a_tail_torn_at_any_byte_is_left_out_and_the_next_epoch_goes_on(tmp_path: Path) -> None:
    """The controller died in mid-write. Every cut of the last line gives the entries before it, and a good next epoch."""
    whole = three(tmp_path / "all").read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "000001.jsonl").write_bytes(whole[:cut])
        assert entries(folder)[1:] == [STARTED, Paused("li", "w\u00fc")]
        journal = begin(folder)
        journal.append([Resumed("li", "again")], 9.0)
        journal.close()
        assert [s.number for s in read(str(folder))] == [1, 2, 3, 4, 5]
        assert entries(folder)[-1] == Resumed("li", "again")


def test_damage_in_the_middle_is_told_at_any_byte(tmp_path: Path) -> None:
    """A bit that flips in an entry that more follow is no crash: nothing is guessed."""
    segment = three(tmp_path)
    whole = segment.read_bytes()
    start = whole.index(b"\n") + 1
    for at in range(start, whole.index(b"\n", start)):
        segment.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(JournalDamagedError, match=r"000001\.jsonl:2"):
            read(str(tmp_path))
    segment.write_bytes(whole)
    assert len(read(str(tmp_path))) == 4


def test_a_line_taken_out_or_exchanged_is_told(tmp_path: Path) -> None:
    segment = three(tmp_path)
    lines = segment.read_bytes().splitlines(keepends=True)
    for bad in ([lines[0], *lines[2:]], [lines[0], lines[2], lines[1], lines[3]]):
        segment.write_bytes(b"".join(bad))
        with pytest.raises(JournalDamagedError):
            read(str(tmp_path))


@pytest.mark.parametrize("gone", [1, 2])
def test_a_segment_that_is_missing_is_told(tmp_path: Path, gone: int) -> None:
    for _ in range(3):
        begin(tmp_path).close()
    (tmp_path / f"{gone:06d}.jsonl").unlink()
    with pytest.raises(JournalDamagedError, match="is gone"):
        read(str(tmp_path))


@pytest.mark.parametrize("header", [b"", b"\n", b"[]\n", b'{"d":{}}\n', b'{"d":3}\n', b"\xff\n"])
def test_a_segment_without_a_header_is_told(tmp_path: Path, header: bytes) -> None:
    three(tmp_path)
    (tmp_path / "000002.jsonl").write_bytes(header)
    with pytest.raises(JournalDamagedError, match="no header"):
        read(str(tmp_path))


def test_an_entry_that_is_whole_and_not_understood_is_told(tmp_path: Path) -> None:
    """A newer version wrote it: its hash is right, its kind is not known here. It is not skipped."""
    from supervisor.journal.journal import _HEAD, _hash

    segment = three(tmp_path)
    previous = segment.read_bytes().splitlines()[-1][6:38].decode()
    rest = b'"v":1,"n":5,"e":1,"at":4.0,"d":{"kind":"something-new"}}'
    line = _HEAD + _hash(previous, rest).encode() + b'",' + rest + b"\n"
    segment.write_bytes(segment.read_bytes() + line)
    with pytest.raises(JournalDamagedError, match="cannot be understood"):
        read(str(tmp_path))


def test_a_newer_epoch_fences_and_what_the_older_one_wrote_after_it_is_void(tmp_path: Path) -> None:
    """The old controller was slow: its line lands after the next epoch has begun. It is void, and its next append fails."""
    old = begin(tmp_path)
    old.append([STARTED], 2.0)
    segment = tmp_path / "000001.jsonl"
    before = segment.read_bytes()
    old.append([Paused("li", "late")], 3.0)
    late = segment.read_bytes()
    segment.write_bytes(before)
    new = begin(tmp_path)
    segment.write_bytes(late)
    assert Paused("li", "late") not in entries(tmp_path)
    with pytest.raises(FencedError):
        old.append([Resumed("li", "x")], 4.0)
    assert segment.read_bytes() == late
    new.append([Resumed("new", "y")], 5.0)
    assert entries(tmp_path)[-1] == Resumed("new", "y")
    assert [s.number for s in read(str(tmp_path))] == [1, 2, 3, 4]
    old.close()
    new.close()


def test_two_processes_that_begin_at_once_get_different_epochs(tmp_path: Path) -> None:
    """Ten each, at the same time: no epoch twice, and the journal is whole."""
    code = (
        "import sys\n"
        "from supervisor.journal.journal import Journal\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for _ in range(10):\n"
        "    j = Journal.begin(sys.argv[1], lambda: 1.0, 'h', 1)[0]; print(j.epoch); j.close()\n"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for one in racers:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in racers:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    epochs = [int(line) for one in racers for line in one.communicate()[0].split()]
    assert [one.returncode for one in racers] == [0, 0]
    assert sorted(epochs) == list(range(1, 21))
    assert [epoch for epoch, _ in segments(str(tmp_path))] == list(range(1, 21))
    seen = read(str(tmp_path))  # of two that began at once the lower one's header may be void
    assert seen[-1].epoch == 20
    assert [s.number for s in seen] == list(range(1, len(seen) + 1))


def test_a_full_disk_leaves_a_journal_that_can_be_read(tmp_path: Path) -> None:
    """A write fails in the middle of a line. Nothing more is taken by this epoch, not even when there is room again."""
    code = (
        "import resource, sys\n"
        "from supervisor.journal.entries import Paused, Resumed\n"
        "from supervisor.journal.journal import Journal\n"
        "j = Journal.begin(sys.argv[1], lambda: 1.0, 'h', 1)[0]\n"
        "j.append([Paused('li', 'first')], 2.0)\n"
        "import os; size = os.stat(sys.argv[1] + '/000001.jsonl').st_size\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))\n"
        "for limit in (size + 50, hard):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))\n"
        "    try:\n"
        "        j.append([Resumed('li', 'second')], 3.0)\n"
        "    except OSError as error:\n"
        "        print(error.errno, flush=True)\n"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, check=True)
    assert [int(n) for n in out.stdout.split()] == [27, 5]  # EFBIG, then EIO
    assert entries(tmp_path)[1:] == [Paused("li", "first")]
    next_one = begin(tmp_path)
    next_one.append([Resumed("li", "third")], 4.0)
    next_one.close()
    assert entries(tmp_path)[-1] == Resumed("li", "third")


def test_the_journal_of_a_whole_story_gives_the_history_that_the_controller_kept(tmp_path: Path) -> None:
    """A node lost and a run brought back, journaled and read again: fold rebuilds what the policies saw."""
    scene = training()
    scene.lose("n1")
    scene.settle()
    told = scene.stamped[1:]  # the header is the journal's own
    journal, stamped = Journal.begin(str(tmp_path), lambda: scene.stamped[0].at, "h", 1)
    live = fold_all(History(), stamped)
    for one in told:
        live = fold_all(live, journal.append([one.entry], one.at))
    journal.close()
    assert fold_all(History(), read(str(tmp_path))) == live
    assert live == scene.history
    assert live.attempt is not None
    assert live.attempt.number == 2


def test_other_files_in_the_folder_are_no_segments(tmp_path: Path) -> None:
    three(tmp_path)
    (tmp_path / "000002.jsonl.77.ab.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_bytes(b"x")
    assert len(read(str(tmp_path))) == 4
    assert os.listdir(tmp_path)
