"""The agent reads for the controller: one child, fed and heard, that ends whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
import xxhash

from slurm.processes import look
from supervisor.agent.reading import Reading
from supervisor.bench.checkpoint_reading import make_content

DEADLINE_S = 20


@pytest.fixture
def save(tmp_path):
    folder = tmp_path / "iter_0000040"
    folder.mkdir()
    make_content(str(folder), 3, 300_000)
    return folder


class Heard:
    """What the agent tells, to be awaited."""

    def __init__(self, threads=2):
        self.told = []
        self.seen = asyncio.Event()
        self.reading = Reading("n000", self._tell, threads)

    def _tell(self, message):
        self.told.append(message)
        self.seen.set()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.reading.close()

    def of(self, kind):
        return [message for message in self.told if message["type"] == kind]

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.seen.clear()
                await self.seen.wait()

    def ask(self, save, *names, crc=True, name="1-1", rate=None, deadline_s=60.0, **wrong):
        files = [{"path": n, "size": (save / n).stat().st_size, "crc": crc, **wrong} for n in names]
        self.reading.obey(
            {"type": "read", "id": name, "root": str(save), "files": files, "rate": rate, "deadline_s": deadline_s}
        )


def shards(save):
    return sorted(path.name for path in save.iterdir() if path.name.endswith(".distcp"))


def test_files_are_read_as_they_are_asked_for_by_one_child(save):
    async def scene():
        async with Heard() as heard:
            first, *rest = shards(save)
            heard.ask(save, first)
            await heard.until(lambda: heard.of("read-part"))
            pid = heard.reading._last.pid
            assert os.getpriority(os.PRIO_PROCESS, pid) == 19
            heard.ask(save, *rest, crc=False)
            await heard.until(lambda: len(heard.of("read-part")) == 3)
            assert heard.reading._last.pid == pid
            heard.reading.obey({"type": "read-stop", "id": "1-1"})
            await heard.until(lambda: heard.of("read-done"))
        assert look(pid) is None
        return heard

    heard = asyncio.run(scene())
    parts = {part["path"]: part for part in heard.of("read-part")}
    for name, part in parts.items():
        data = (save / name).read_bytes()
        assert (part["node"], part["id"], part["size"]) == ("n000", "1-1", len(data))
        assert part["xxh3"] == xxhash.xxh3_128_hexdigest(data)
        assert part["findings"] == []
    assert [parts[name]["items"] for name in shards(save)] == [1, None, None]
    assert heard.of("read-done") == [
        {"type": "read-done", "node": "n000", "id": "1-1", "why": "as asked", "away": False}
    ]


def test_what_is_broken_is_found_and_what_can_not_be_read_is_said(save):
    rotten, short, gone = shards(save)
    data = bytearray((save / rotten).read_bytes())
    data[200_000] ^= 1
    (save / rotten).write_bytes(data)

    async def scene():
        async with Heard() as heard:
            heard.ask(save, rotten)
            heard.ask(save, short, size=(save / short).stat().st_size + 1)
            heard.reading.obey(
                {"type": "read", "id": "1-1", "root": str(save), "rate": None, "deadline_s": 60.0,
                 "files": [{"path": gone + "x", "size": 1, "crc": True}]}
            )  # fmt: skip
            await heard.until(lambda: len(heard.of("read-part")) == 3)
        return {part["path"]: part for part in heard.of("read-part")}

    parts = asyncio.run(scene())
    assert [code for code, *_ in parts[rotten]["findings"]] == ["CRC"]
    assert "bytes here" in parts[short]["fault"]
    assert parts[gone + "x"]["fault"] == "No such file or directory"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "", ".."])
def test_nothing_outside_of_the_folder_is_read(save, path):
    (save.parent / "secret").write_text("x")

    async def scene():
        async with Heard() as heard:
            heard.reading.obey(
                {"type": "read", "id": "1", "root": str(save), "rate": None, "deadline_s": 60.0,
                 "files": [{"path": path, "size": 1, "crc": False}]}
            )  # fmt: skip
            await heard.until(lambda: heard.of("read-part"))
            return heard.of("read-part")[0]

    assert "not the name of a file" in asyncio.run(scene())["fault"]


def test_a_folder_that_is_not_there_is_said_to_be_away(save):
    async def scene():
        async with Heard() as heard:
            name = shards(save)[0]
            heard.ask(save, name)
            heard.told.clear()
            heard.reading.obey(
                {"type": "read", "id": "2", "root": str(save) + "x", "rate": None, "deadline_s": 60.0, "files": []}
            )
            await heard.until(lambda: [m for m in heard.of("read-done") if m["id"] == "2"])
            return heard.of("read-done")

    first, second = asyncio.run(scene())
    assert (first["id"], first["why"]) == ("1-1", "another reading was asked for")
    assert (second["id"], second["away"]) == ("2", True)


def test_a_child_that_dies_or_is_late_is_told(save):
    async def scene():
        async with Heard() as heard:
            name = shards(save)[0]
            heard.ask(save, name)
            await heard.until(lambda: heard.of("read-part"))
            os.kill(heard.reading._last.pid, signal.SIGKILL)
            await heard.until(lambda: heard.of("read-done"))
            # A byte a second: it can't be done in half a second.
            heard.ask(save, *shards(save), name="3", rate=1.0, deadline_s=0.5)
            await heard.until(lambda: len(heard.of("read-done")) == 2)
            pid = heard.reading._last.pid if heard.reading._last else 0
        assert look(pid) is None
        return [done["why"] for done in heard.of("read-done")]

    assert asyncio.run(scene()) == ["it ended with -9", "not done within 0.5 s"]


def test_a_limit_is_lifted_while_files_are_read(save):
    async def scene():
        async with Heard(threads=1) as heard:
            heard.ask(save, *shards(save), rate=1.0)
            heard.ask(save, rate=None)
            await heard.until(lambda: len(heard.of("read-part")) == 3)

    asyncio.run(scene())  # under the limit it would be days


@pytest.mark.parametrize(
    "wrong",
    [{"id": 5}, {"id": ""}, {"root": "x"}, {"root": None}, {"files": "f"}, {"files": [{"path": 1, "size": 1}]},
     {"files": [{"path": "a", "size": "1"}]}, {"rate": -1}, {"rate": "x"}, {"rate": float("nan")}, {"deadline_s": None},
     {"deadline_s": float("nan")}, {"deadline_s": 0}, {"files": [{"path": "a", "size": 1, "sha256": 5}]}],
)  # fmt: skip
def test_what_makes_no_sense_starts_nothing(save, wrong):
    async def scene():
        async with Heard() as heard:
            good = {"type": "read", "id": "1", "root": str(save), "files": [], "rate": None, "deadline_s": 60.0}
            heard.reading.obey(good | wrong)
            assert heard.reading._child is None
            heard.reading.obey(good)
            assert heard.reading._child is not None

    asyncio.run(scene())
