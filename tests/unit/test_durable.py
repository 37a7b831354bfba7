"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.durable import create_whole, replace_whole


def test_the_first_creation_stands(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert create_whole(str(path), b"one")
    assert not create_whole(str(path), b"two")
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_a_replacement_is_seen_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_whole(str(path), b"one")
    with open(path, "rb") as open_before:
        replace_whole(str(path), b"two", mode=0o640)
        assert open_before.read() == b"one"
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["create_whole", "replace_whole", "show_whole"])
def test_a_full_disk_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "old").write_bytes(b"old")
    target = "new" if name == "create_whole" else "old"
    code = (
        f"import resource, sys; from supervisor.durable import {name} as write\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n    write(sys.argv[1], b'x' * 1000)\n"
        "except OSError as error:\n    sys.exit(error.errno)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 0
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / target)], check=False)
    assert done.returncode == 27  # EFBIG
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


def test_a_name_that_cannot_be_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_whole(str(tmp_path / "folder"), b"x")
    assert os.listdir(tmp_path) == ["folder"]


def test_of_many_creators_one_wins(tmp_path: Path) -> None:
    """Eight processes at once: one creates it, and what is there is whole and that one's."""
    code = (
        "import sys; from supervisor.durable import create_whole\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(int(create_whole(sys.argv[1], sys.argv[2].encode() * 10_000)))\n"
    )
    path = tmp_path / "a"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(8)
    ]
    for one in racers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in racers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    won = [n for n, one in enumerate(racers) if one.communicate()[0].strip() == "1"]
    assert len(won) == 1
    assert path.read_bytes() == str(won[0]).encode() * 10_000
    assert os.listdir(tmp_path) == ["a"]


def test_a_bare_name_lies_in_the_folder_where_we_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create_whole("one", b"1")
    replace_whole("one", b"2")
    assert (tmp_path / "one").read_bytes() == b"2"
