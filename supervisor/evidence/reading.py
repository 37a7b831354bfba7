"""One log file -> the lines that mean something, with their labels, their times and what stands around them.

One pass of the engine finds candidates; only those are decoded and looked at. What repeats is counted, not kept.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

from supervisor.evidence.engine import Engine, engine
from supervisor.evidence.files import UnreadableError, blocks
from supervisor.evidence.labels import Label, read_label
from supervisor.evidence.scan import LONGEST, TEXT, clean, fit, uncoloured, unwrapped
from supervisor.evidence.stamps import Stamp, read_stamp
from supervisor.evidence.table import Signature, read_table, table

KEPT: Final = {"root": 200, "cascade": 40, "context": 40, "benign": 8}
"""Lines of one kind that are kept of one file, by role; of cascades also the first of each speaker, up to SPEAKERS."""

SPEAKERS: Final = 8192
"""Speakers whose first line of one kind is kept beyond KEPT, of roots and of those cascades that tell who waits."""

PASSED: Final = 32
"""Finds of rows of which enough is kept that are remembered, for a line may fit several rows."""

SPEAKER: Final = 20
"""Bytes at the start of a line that tell its speaker from others: a label, or host and process."""

MARKS: Final = 24
FEW_MARKS: Final = 6
"""Step lines kept from the start and from the end of a file; the smaller number where thousands of files are read."""

LOOK_BACK: Final = 8192
LOOK_ON: Final = 4096
"""Bytes before and behind a line in which its traceback and the nearest times are looked for."""

STEP: Final = read_table(resources.files("supervisor.evidence").joinpath("steps.toml").read_text("utf-8"))
"""The one row for lines of progress; its group `step` is the number of the step, where there is one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that shows that training went on."""

    line: int
    step: int | None
    stamp: Stamp | None
    label: Label
    seconds: float | None  # per step, where the line tells it
    finite: bool  # the loss that it tells is a number; True when it tells none
    total: int | None = None  # the steps of the whole run, where the line tells it: `iteration 40/ 9000`


@dataclass(frozen=True, slots=True)
class Raw:
    """A line of a known kind, before its place and time are resolved."""

    line: int
    row: Signature
    groups: dict[str, str]
    text: str
    label: Label
    stamp: Stamp | None
    before: Stamp | None  # the nearest time above, within LOOK_BACK
    after: Stamp | None
    since_boot: float | None  # seconds on the kernel's own clock, where the line has no other time
    around: str  # what follows a stack or a launcher's block; the traceback above a root


@dataclass(slots=True)
class FileReading:
    """What one file gave."""

    name: str
    size: int = 0
    lines: int = 0
    mtime: float = 0.0
    raws: list[Raw] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    words: tuple[int, str] | None = None  # the last line before the first cascade (or of the file)
    own_words: list[tuple[int, str]] = field(
        default_factory=list
    )  # of labelled speakers, each before its own first cascade
    first_cascade: int | None = None
    first: Stamp | None = None  # the first time in the file
    first_line: int = 0  # where it stands
    opening: str = ""  # the first line that carries a time, without its digits
    problem: str = ""


_PLACES: Final = ("layout-nccl", "layout-address", "layout-rank", "layout-process", "layout-alias")
"""Kinds that every speaker says once, and of which each counts."""

_MARK: Final = re.compile(rb"\[(?:default|rank)\d{1,6}\]:|\d{1,6}: |[\w.-]{1,40}: \[rank\d{1,6}\]:")
"""A label at the start of a line, by which the other lines of the same speaker are found."""

_NOT_FINITE: Final = re.compile(
    r"loss['\"]?\s*[:=]\s*['\"]?[-+]?(nan|inf)|grad[_ ]norm['\"]?\s*[:=]\s*['\"]?[-+]?nan", re.IGNORECASE
)
_TOTAL: Final = re.compile(r"\b(?:iteration|step)[ =:]+(\d{1,15})\s*/\s*(\d{1,15})\b")
_PER_STEP: Final = re.compile(r"elapsed time per iteration \((ms|s)\): ([\d.]+)")


class Reader:
    """Reads files with one table. Costs about 20 MB for the engine, once."""

    def __init__(self, rows: Sequence[Signature] | None = None, scanner: Engine | None = None) -> None:
        self.rows = tuple(table() if rows is None else rows) + STEP
        self._step = len(self.rows) - 1
        self._engine = engine(self.rows) if scanner is None else scanner

    def read(self, path: str, name: str, marks: int = MARKS) -> FileReading:
        """Read one file to its end, or to where it breaks off: then `problem` says why."""
        out = FileReading(name)
        work = _Work(out, self.rows, self._step, marks)
        try:
            status = os.stat(path)
            out.size, out.mtime = status.st_size, status.st_mtime
            for block in blocks(path):
                work.block(block, self._engine)
        except (UnreadableError, OSError) as error:
            out.problem = str(error)
        work.close()
        return out


class _Work:
    """The state of reading one file."""

    def __init__(self, out: FileReading, rows: Sequence[Signature], step: int, marks: int) -> None:
        self.out = out
        self.rows = rows
        self.step = step
        self.marks = marks
        self.back = b""  # the end of the block before
        self.kept: Counter[int] = Counter()
        self.line = 1
        self.skipped: Counter[int] = Counter()
        self.hurt: set[bytes] = set()  # the labels of those who have told of a cascade
        self.met: dict[int, set[bytes]] = {}  # by row: the speakers who have said it
        self.full: dict[
            int, tuple[bool, list[int]]
        ] = {}  # rows of which enough is kept -> of everybody?; finds passed over
        self.late: dict[int, deque[Raw]] = {}
        self.first_marks: deque[tuple[int, bytes]] = deque()
        self.last_marks: deque[tuple[int, bytes]] = deque(maxlen=marks)

    def block(self, data: bytes, scanner: Engine) -> None:
        """Look at the next block of the file."""
        if self.out.first is None:
            for number, raw in enumerate(data[:LOOK_BACK].split(b"\n")):
                self.out.first = _nearest([raw])
                if self.out.first is not None:
                    self.out.first_line = self.line + number
                    self.out.opening = re.sub(r"\d+", "0", raw[:160].decode("utf-8", "replace"))
                    break
        hits = scanner.scan(data)
        at_start = self.line
        line, counted, start, end_of_line = at_start, 0, 0, -1
        full, met = self.full, self.met
        ends: list[int] = []
        hot, whole, rfind = -1, False, data.rfind  # what is known of the row that was met last, while nothing is kept
        nobody: set[bytes] = set()
        heard, pass_over = nobody, ends.append
        step, early = self.step, self.marks - len(self.first_marks)
        first_steps: list[int] = []
        last_steps: deque[int] = deque(maxlen=self.marks)
        for hit in hits:
            row = hit & 4095
            end = hit >> 12
            if end > end_of_line and row in full:
                # What a cascade repeats by the million costs no more than this: whose line is it, and is it his first?
                if row != hot:
                    hot, heard = row, met.get(row, nobody)
                    whole, pass_over = full[row][0], full[row][1].append
                begin = rfind(b"\n", 0, end - 1) + 1
                if data[begin : begin + SPEAKER] in heard or whole:
                    pass_over(hit)
                    continue
            if row == step:
                # A line of progress is looked at when it is among the first or the last of the file, else only passed.
                if early > len(first_steps):
                    first_steps.append(end)
                else:
                    last_steps.append(end)
                continue
            if end <= end_of_line:
                ends.append(hit)
                continue
            if ends:
                self._line(data, start, end_of_line, line, ends)
                hot = -1
            start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
            end_of_line = data.find(b"\n", max(end - 1, 0))
            if end_of_line < 0:
                end_of_line = len(data)
            line += data.count(b"\n", counted, start)
            counted = start
            ends = [hit]
            for _, passed in full.values():
                while passed and passed[-1] >> 12 > start:
                    # The line may be of a row of which enough is kept; then it is not one for the rows below that.
                    ends.append(passed.pop())
        if ends:
            self._line(data, start, end_of_line, line, ends)
        if first_steps or last_steps:
            self._steps(data, at_start, first_steps, last_steps)
        for row, (_, passed) in full.items():
            self.skipped[row] += len(passed)
            passed.clear()
        self.line = line + data.count(b"\n", counted)
        self.out.lines = self.line - (1 if data.endswith(b"\n") else 0)
        self.back = data[-LOOK_BACK:]

    def _line(self, data: bytes, start: int, stop: int, line: int, ends: list[int]) -> None:
        texts: dict[int, str] = {}
        for hit in sorted(ends, key=lambda h: h & 4095):
            row, end = hit & 4095, hit >> 12
            begin = data.rfind(b"\r", start, max(end - 1, start)) + 1 or start
            begin = max(begin, start)
            if begin not in texts:
                texts[begin] = unwrapped(clean(_window(data, begin, stop, end)))
            found = fit(texts[begin], self.rows[row : row + 1])
            if found is not None and row in self.full and self._enough(row, data, start):
                self.skipped[row] += 1
                return
            if found is not None:
                self._keep(data, start, stop, line, row, found[1], texts[begin])
                return

    def _enough(self, row: int, data: bytes, start: int) -> bool:
        return self.full[row][0] or data[start : start + SPEAKER] in self.met.get(row, ())

    def _steps(self, data: bytes, line: int, first: Iterable[int], last: Iterable[int]) -> None:
        """Keep lines of progress, found at these ends; `line` is the number of the block's first line."""
        counted, known = 0, -1
        for ends, marks in ((first, self.first_marks), (last, self.last_marks)):
            for end in ends:
                start = data.rfind(b"\n", 0, end - 1) + 1
                if start == known:
                    continue  # the same line: a bar that was drawn again and again
                known = start
                stop = data.find(b"\n", end - 1)
                stop = len(data) if stop < 0 else stop
                line += data.count(b"\n", counted, start)
                counted = start
                marks.append((line, data[max(start, data.rfind(b"\r", start, stop - 1) + 1) : stop][:512]))

    def _keep(self, data: bytes, start: int, stop: int, line: int, row: int, match: re.Match[str], text: str) -> None:
        signature = self.rows[row]
        out = self.out
        out.counts[signature.kind] += 1
        self.kept[row] += 1
        if signature.role == "cascade":
            self._before_cascade(data, start, line)
        if signature.role == "benign":
            self._had_enough(row, of_everybody=True)
            return
        told = signature.role == "root" or (signature.role == "cascade" and signature.grade >= 2)
        told = told or signature.kind in _PLACES
        if told:
            self.met.setdefault(row, set()).add(data[start : start + SPEAKER])
        if self.kept[row] >= KEPT[signature.role] and (told or signature.role in ("cascade", "benign")):
            self._had_enough(row, of_everybody=not told or self.kept[row] >= SPEAKERS)
        label = read_label(text)
        if label == Label() and (data.find(b"\r", start, stop) >= 0):
            label = read_label(clean(data[start : min(stop, start + 300)].decode("utf-8", "replace")))
        stamp = read_stamp(text)
        before = after = stamp
        around = ""
        root = signature.role == "root"
        if root or signature.kind.startswith(("activity", "layout-block", "layout-stack", "layout-section")):
            behind, ahead = self._behind(data, start), data[stop + 1 : stop + 1 + LOOK_ON]
            if stamp is None:
                before, after = _nearest(reversed(behind.split(b"\n"))), _nearest(ahead.split(b"\n"))
            if root:
                around = _traceback(behind, ahead, signature.kind)
            elif signature.kind.startswith("layout"):
                upon = b"" if signature.kind == "layout-stack" else behind[-400:]
                around = "\f".join(uncoloured(part.decode("utf-8", "replace")) for part in (upon, ahead[:2600]))
        raw = Raw(
            line=line,
            row=signature,
            groups={name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value},
            text=text.strip()[:TEXT],
            label=label,
            stamp=stamp,
            before=before,
            after=after,
            since_boot=_since_boot(text) if stamp is None or signature.kind == "boot-clock" else None,
            around=around,
        )
        if self.kept[row] <= KEPT[signature.role] or told:
            out.raws.append(raw)
        elif signature.role == "context":
            self.late.setdefault(row, deque(maxlen=KEPT["context"])).append(raw)

    def _before_cascade(self, data: bytes, start: int, line: int) -> None:
        """Keep what was said last: in the file before its first cascade, and by each speaker of a label before his own first."""
        out = self.out
        if out.first_cascade is None:
            out.first_cascade = line
            out.words = _last_words(self._behind(data, start), line)
        mark = _MARK.match(data, start, start + 48)
        if mark is None or mark[0] in self.hurt or len(self.hurt) >= SPEAKERS:
            return
        self.hurt.add(mark[0])
        at = data.rfind(b"\n" + mark[0], max(0, start - LOOK_BACK), start) + 1
        if at > 0:
            stop = data.find(b"\n", at)
            text = clean(data[at : min(stop, at + TEXT)].decode("utf-8", "replace")).strip()
            out.own_words.append((line - data.count(b"\n", at, start), text))

    def _had_enough(self, row: int, *, of_everybody: bool) -> None:
        if row not in self.full or self.full[row][0] != of_everybody:
            self.full[row] = (of_everybody, self.full[row][1] if row in self.full else [])

    def _behind(self, data: bytes, start: int) -> bytes:
        if start >= LOOK_BACK:
            return data[start - LOOK_BACK : start]
        return (self.back + data[:start])[-LOOK_BACK:]

    def close(self) -> None:
        """The file is at its end."""
        out = self.out
        if any(count >= SPEAKERS for count in self.kept.values()):
            out.problem = out.problem or f"more than {SPEAKERS} speakers of one kind; the rest is only counted"
        for row, count in self.skipped.items():
            out.counts[self.rows[row].kind] += count
        for late in self.late.values():
            out.raws.extend(late)
        out.raws.sort(key=lambda raw: raw.line)
        if out.words is None and out.first_cascade is None and self.back:
            out.words = _last_words(self.back.removesuffix(b"\n") + b"\n", out.lines + 1)
        lines = [(line, clean(raw.decode("utf-8", "replace"))) for line, raw in (*self.first_marks, *self.last_marks)]
        out.marks = [mark for line, text in lines if (mark := _read_mark(line, text)) is not None]


def _last_words(before: bytes, line: int) -> tuple[int, str] | None:
    """The last line of words in what stands before line number `line`, with its number."""
    for raw in reversed(before.split(b"\n")[:-1]):
        line -= 1
        text = clean(raw[-TEXT:].decode("utf-8", "replace")).strip()
        if _says(text):
            return (line, text) if line > 0 else None
    return None


def _says(text: str) -> bool:
    """Is it a line of words, not of bytes that no program meant?"""
    return bool(text) and ("\N{REPLACEMENT CHARACTER}" not in text or re.search(r"[A-Za-z0-9]{2}", text) is not None)


def _read_mark(line: int, text: str) -> Mark | None:
    match = STEP[0].pattern.search(text)
    if match is None:
        return None
    step = next((int(value) for value in match.groupdict().values() if value and len(value) < 16), None)
    seconds = None
    if per := _PER_STEP.search(text):
        seconds = float(per[2]) / (1000.0 if per[1] == "ms" else 1.0) if per[2].count(".") <= 1 else None
    of = _TOTAL.search(text)
    total = int(of[2]) if of and int(of[1]) == step else None
    return Mark(line, step, read_stamp(text), read_label(text), seconds, _NOT_FINITE.search(text) is None, total)


def _window(data: bytes, begin: int, stop: int, end: int) -> str:
    """The line, or of a line without end its head and what stands around the find."""
    if stop - begin <= LONGEST:
        raw = data[begin:stop]
    elif end - begin < LONGEST // 2:
        raw = data[begin : begin + LONGEST]
    else:
        raw = data[begin : begin + 512] + b" ... " + data[end - LONGEST // 2 : min(stop, end + LONGEST // 3)]
    return raw.decode("utf-8", "replace")


def _nearest(lines: Iterable[bytes]) -> Stamp | None:
    for number, raw in enumerate(lines):
        if number > 60:
            return None
        stamp = read_stamp(raw[:400].decode("utf-8", "replace")) if b":" in raw else None
        if stamp is not None:
            return stamp
    return None


_SINCE_BOOT: Final = re.compile(r"(?:^|: |kernel: )\[ *(\d{1,10}\.\d{1,6})\] ")


def _since_boot(text: str) -> float | None:
    match = _SINCE_BOOT.search(text[:120])
    return float(match[1]) if match else None


_FRAME: Final = re.compile(r'File "([^"]{1,300})", line \d+,? in (\S{1,80})')


def _traceback(behind: bytes, ahead: bytes, kind: str) -> str:
    """The frames that led to a root: files and functions, outermost first. Above it; below it for a crash handler's dump."""
    if kind == "python-crash":
        frames = _FRAME.findall(ahead[:2000].decode("utf-8", "replace"))[:12]
    else:
        tail = behind.decode("utf-8", "replace")
        cut = tail.rfind("Traceback (most recent call last)")
        frames = _FRAME.findall(tail[cut:])[-12:] if cut >= 0 else []
    return "\n".join(f"{file} {function}" for file, function in frames)
