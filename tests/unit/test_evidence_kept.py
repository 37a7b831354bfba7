"""Compiled patterns between two starts: used when whole and ours, else compiled anew."""

from __future__ import annotations

import os

import pytest

from supervisor.evidence import kept
from supervisor.evidence.engine import Hyperscan
from supervisor.evidence.table import read_table

ROWS = read_table('[[signature]]\nkind="a"\npattern="needle"\nrole="root"\ncategory="data"\n')
OTHER = read_table('[[signature]]\nkind="a"\npattern="haystack"\nrole="root"\ncategory="data"\n')


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "relight")


def the_file(folder):
    (name,) = os.listdir(folder)
    return os.path.join(folder, name)


def test_what_was_kept_comes_back_and_nothing_else_does(folder):
    kept.save(folder, "k", b"blob")
    assert kept.load(folder, "k") == b"blob"
    assert kept.load(folder, "j") is None
    assert kept.load(folder + "-elsewhere", "k") is None


def cut(path):
    os.truncate(path, os.path.getsize(path) - 1)


def changed(path):
    with open(path, "r+b") as file:
        file.seek(34)
        file.write(b"X")


def opened_to_all(path):
    os.chmod(path, 0o666)  # noqa: S103 - the harm


def linked(path):
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


def emptied(path):
    os.truncate(path, 0)


def a_folder_for_all(path):
    os.chmod(os.path.dirname(path), 0o777)  # noqa: S103 - the harm


@pytest.mark.parametrize("harm", [cut, changed, opened_to_all, linked, emptied, a_folder_for_all])
def test_what_is_not_whole_or_not_ours_is_not_used(folder, harm):
    kept.save(folder, "k", b"blob")
    harm(the_file(folder))
    assert kept.load(folder, "k") is None


def test_only_some_are_kept(folder):
    for number in range(kept.FILES + 3):
        kept.save(folder, f"k{number}", b"blob")
        os.utime(os.path.join(folder, f"patterns-k{number}.hs"), (number, number))
    assert len(os.listdir(folder)) == kept.FILES
    assert kept.load(folder, f"k{kept.FILES + 2}") == b"blob"


def test_where_nothing_can_be_kept_nothing_is(tmp_path):
    (tmp_path / "file").write_text("")
    kept.save(str(tmp_path / "file" / "relight"), "k", b"blob")
    assert kept.load(str(tmp_path / "file" / "relight"), "k") is None


def test_the_place_is_the_users_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept.cache() == str(tmp_path / "relight")
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert kept.cache() is None


def test_an_engine_finds_the_same_from_its_cache(folder):
    pytest.importorskip("hyperscan")
    text = b"a needle\nin a haystack\n"
    compiled, loaded = Hyperscan(ROWS, folder), Hyperscan(ROWS, folder)
    assert compiled.scan(text) == loaded.scan(text) == [8 << 12]
    assert Hyperscan(OTHER, folder).scan(text) == [len(text) - 1 << 12]
    assert len(os.listdir(folder)) == 2


def test_a_cache_that_holds_no_patterns_is_compiled_anew(folder):
    pytest.importorskip("hyperscan")
    Hyperscan(ROWS, folder)
    key = os.path.basename(the_file(folder)).removeprefix("patterns-").removesuffix(".hs")
    kept.save(folder, key, b"no database at all")
    assert Hyperscan(ROWS, folder).scan(b"needle") == [6 << 12]
