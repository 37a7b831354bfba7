"""Whatever happens to its bytes, a journal gives a prefix of what was written, or says that it is damaged."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.journal.entries import Paused
from supervisor.journal.journal import Journal, JournalDamagedError, read

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def written(folder: str, epochs: list[list[str]]) -> list[str]:
    told = []
    for texts in epochs:
        journal, _ = Journal.begin(folder, lambda: 1.0, "h", 1)
        for text in texts:
            journal.append([Paused("li", text)], 2.0)
            told.append(text)
        journal.close()
    return told


def texts_of(folder: str) -> list[str]:
    return [s.entry.why for s in read(folder) if isinstance(s.entry, Paused)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(words, max_size=3), min_size=1, max_size=3))
def test_any_text_comes_back(epochs: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = written(folder, epochs)
        assert texts_of(folder) == told
        assert [s.number for s in read(folder)] == list(range(1, len(told) + len(epochs) + 1))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_gives_a_prefix_or_is_told(data: st.DataObject) -> None:
    """One segment is cut, changed in a byte, or given a foreign tail. No entry is ever invented or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        told = written(folder, [["one", "two"], ["three"], ["four", "five"]])
        path = Path(folder) / f"{data.draw(st.integers(1, 3)):06d}.jsonl"
        raw = path.read_bytes()
        at = data.draw(st.integers(0, len(raw) - 1))
        how = data.draw(st.sampled_from(["cut", "change", "tail"]))
        tail = data.draw(st.binary(min_size=1, max_size=20))
        changed = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
        path.write_bytes({"cut": raw[:at], "change": changed, "tail": raw + tail}[how])
        try:
            seen = texts_of(folder)
        except JournalDamagedError:
            return
        assert seen == told[: len(seen)]
        assert path.name == "000003.jsonl" or how == "tail" or len(seen) == len(told)
