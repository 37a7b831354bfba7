"""File systems and servers that lose replies, answer late, half or not at all: no wrong answer comes of it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from supervisor.checkpoints.objects.files import Files
from supervisor.checkpoints.objects.opening import open_objects
from supervisor.checkpoints.objects.patience import Patience, Until
from supervisor.checkpoints.objects.port import (
    Conflict,
    Deleted,
    Found,
    Made,
    Missing,
    NotYet,
    Objects,
    Version,
    Written,
)
from supervisor.checkpoints.objects.posix import PosixObjects
from supervisor.errors import UserError

W = 60.0
SOON = 0.2
KEY = "a/COMMITTED"


# --- files --------------------------------------------------------------------------------------------------------------


class Faulty(Files):
    """Fails a call by name once it is told to: before it is done, or after."""

    def __init__(self) -> None:
        self.before: dict[str, OSError] = {}
        self.after: dict[str, OSError] = {}
        self.hang: dict[str, threading.Event] = {}
        self.hung = threading.Event()

    def _at(self, what: str, do: Any, *args: Any) -> Any:
        if what in self.hang:
            self.hung.set()
            self.hang[what].wait(W)
        if what in self.before:
            raise self.before.pop(what)
        done = do(*args)
        if what in self.after:
            raise self.after.pop(what)
        return done

    def names(self, folder: str) -> list[str]:
        return self._at("names", super().names, folder)

    def read(self, path: str, limit: int) -> bytes:
        if os.path.basename(path).startswith("."):
            return super().read(path, limit)
        return self._at("read", super().read, path, limit)

    def create(self, path: str, data: bytes) -> bool:
        return self._at("create", super().create, path, data)

    def make_folder(self, path: str) -> None:
        return self._at("make_folder", super().make_folder, path)


def faulty(root: Path, **more: Any) -> tuple[PosixObjects, Faulty]:
    files = Faulty()
    store = PosixObjects(str(root), lag_s=0.0, files=files, **more)
    assert store.make(within_s=W) == Made()
    return store, files


def written(store: Objects, data: bytes = b"1", key: str = KEY) -> Version:
    done = store.put_if_absent(key, data, within_s=W)
    assert isinstance(done, Written)
    return done.version


def test_a_link_whose_reply_was_lost_is_found_by_reading(tmp_path: Path) -> None:
    store, files = faulty(tmp_path)
    files.after["create"] = OSError(errno.EIO, "lost")
    version = written(store)
    files.after["create"] = FileNotFoundError(errno.ENOENT, "sent twice")
    done = store.put_if_version(KEY, b"2", version, within_s=W)
    assert isinstance(done, Written)
    assert store.get(KEY, within_s=W) == Found(b"2", done.version)


def test_a_write_that_failed_is_not_yet_and_leaves_nothing(tmp_path: Path) -> None:
    store, files = faulty(tmp_path)
    files.before["create"] = OSError(errno.ENOSPC, "No space left on device")
    said = store.put_if_absent(KEY, b"1", within_s=W)
    assert isinstance(said, NotYet)
    assert "No space left" in said.why
    assert store.get(KEY, within_s=W) == Missing()


def test_a_reply_lost_for_good_is_not_yet_and_the_next_read_tells(tmp_path: Path) -> None:
    store, files = faulty(tmp_path)
    files.after["create"] = OSError(errno.EIO, "lost")
    files.before["read"] = OSError(errno.ESTALE, "stale")
    assert isinstance(store.put_if_absent(KEY, b"1", within_s=W), NotYet)
    there = store.get(KEY, within_s=W)
    assert isinstance(there, Found)
    assert there.data == b"1"


@pytest.mark.parametrize("what", ["names", "read"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_what_cannot_be_read_is_neither_missing_nor_broken(what: str, number: int, tmp_path: Path) -> None:
    store, files = faulty(tmp_path)
    version = written(store)
    for call in (
        lambda: store.get(KEY, within_s=W),
        lambda: store.put_if_absent(KEY, b"2", within_s=W),
        lambda: store.put_if_version(KEY, b"2", version, within_s=W),
        lambda: store.delete(KEY, within_s=W),
    ):
        files.before[what] = OSError(number, os.strerror(number))
        assert isinstance(call(), NotYet)
    files.before["names"] = OSError(number, os.strerror(number))
    assert isinstance(store.keys(within_s=W), NotYet)
    assert store.get(KEY, within_s=W) == Found(b"1", version)


def test_a_file_system_that_hangs_holds_no_caller(tmp_path: Path) -> None:
    store, files = faulty(tmp_path, patience=Patience(most=2))
    version = written(store)
    release = threading.Event()
    files.hang["names"] = release
    said = [store.get(KEY, within_s=SOON) for _ in range(4)]  # more than may hang: the others wait, and give up too
    assert all(isinstance(one, NotYet) for one in said), said
    del files.hang["names"]
    release.set()
    assert store.get(KEY, within_s=W) == Found(b"1", version)


def test_threads_that_have_nothing_to_do_end() -> None:
    patience = Patience(idle_s=0.01)
    seen: list[threading.Thread] = []

    def work(_until: Until) -> int:
        seen.append(threading.current_thread())
        return 7

    for _ in range(3):
        assert patience.call("x", work, W) == 7
        seen[-1].join(W)
        assert not seen[-1].is_alive()
    assert len(set(seen)) == 3


def test_nothing_is_begun_after_the_deadline(tmp_path: Path) -> None:
    store, files = faulty(tmp_path, patience=Patience(most=1))  # one thread: the next call comes after the late one
    release = threading.Event()
    files.hang["make_folder"] = release
    assert isinstance(store.put_if_absent(KEY, b"late", within_s=SOON), NotYet)
    assert files.hung.is_set()
    release.set()
    assert store.get(KEY, within_s=W) == Missing()


def test_a_fault_of_ours_reaches_the_caller(tmp_path: Path) -> None:
    class Wrong(Files):
        def names(self, folder: str) -> list[str]:  # noqa: ARG002 - as the real one
            raise ZeroDivisionError

    store = PosixObjects(str(tmp_path), lag_s=0.0, files=Wrong())
    with pytest.raises(ZeroDivisionError):
        store.get(KEY, within_s=W)


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path) -> None:
    files = Faulty()
    files.before["create"] = OSError(errno.EPERM, "Operation not permitted")
    with pytest.raises(UserError, match="no hard links"):
        PosixObjects(str(tmp_path / "x"), files=files).make(within_s=W)


def test_a_put_does_not_make_a_store_where_a_mount_is_gone(tmp_path: Path) -> None:
    store = PosixObjects(str(tmp_path / "mount"), lag_s=0.0)
    for answer in (
        store.put_if_absent(KEY, b"1", within_s=W),
        store.put_if_version(KEY, b"1", Version("1-0"), within_s=W),
        store.delete(KEY, within_s=W),
    ):
        assert isinstance(answer, NotYet)
        assert "no store here" in answer.why
    assert not (tmp_path / "mount").exists()


@pytest.mark.parametrize(
    "plant",
    [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo, lambda path: path.mkdir()],
    ids=["link", "pipe", "folder"],
)
def test_what_is_no_plain_file_is_not_read(plant: Any, tmp_path: Path) -> None:
    store, _ = faulty(tmp_path)
    written(store)
    plant(tmp_path / "a" / "COMMITTED" / "@0000002")
    assert isinstance(store.get(KEY, within_s=W), NotYet)
    assert isinstance(store.put_if_absent(KEY, b"2", within_s=W), NotYet)


def test_old_files_go_and_what_a_reader_may_just_have_seen_stays(tmp_path: Path) -> None:
    store, _ = faulty(tmp_path)
    version = written(store)
    for number in range(20):
        done = store.put_if_version(KEY, b"%d" % number, version, within_s=W)
        assert isinstance(done, Written)
        version = done.version
    assert sorted(os.listdir(tmp_path / "a" / "COMMITTED")) == [f"@{number:07d}" for number in range(6, 22)]
    lagging = PosixObjects(str(tmp_path), lag_s=3_600.0)
    for _ in range(5):
        done = lagging.put_if_version(KEY, b"x", version, within_s=W)
        assert isinstance(done, Written)
        version = done.version
    assert len(os.listdir(tmp_path / "a" / "COMMITTED")) == 21


# --- a server that follows a script ---------------------------------------------------------------------------------------


class TinyS3(BaseHTTPRequestHandler):
    """Objects by path, with conditions. `script`: what to do wrong at the next requests, by method."""

    objects: dict[str, bytes]
    script: dict[str, list[str]]
    deaf: bool
    release: threading.Event

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass

    def _answer(self, code: int, body: bytes = b"", *, e_tag: str = "", claim: int | None = None) -> None:
        self.send_response(code)
        if e_tag:
            self.send_header("ETag", e_tag)
        self.send_header("Last-Modified", "Mon, 30 Nov 2026 10:40:00 GMT")
        self.send_header("Content-Length", str(len(body) if claim is None else claim))
        self.end_headers()
        self.wfile.write(body)

    def _wrong(self) -> str:
        waiting = self.script.get(self.command, [])
        return waiting.pop(0) if waiting else ""

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        wrong = self._wrong()
        if wrong == "hang":
            self.release.wait(W)
        if wrong.isdigit():
            self._answer(int(wrong))
            return
        there = self.objects.get(self.path)
        if not self.deaf:
            tag = self.headers["If-Match"]
            if (self.headers["If-None-Match"] == "*" and there is not None) or (
                tag and (there is None or tag != self._tag(there))
            ):
                self._answer(412)
                return
        self.objects[self.path] = data
        if wrong == "lost":
            self.close_connection = True
            return
        self._answer(200, e_tag=self._tag(data))

    def do_GET(self) -> None:
        wrong, there = self._wrong(), self.objects.get(self.path)
        if wrong.isdigit():
            self._answer(int(wrong))
        elif there is None:
            self._answer(404)
        elif wrong == "short":
            self._answer(200, there[:-4], e_tag=self._tag(there), claim=len(there))
            self.close_connection = True
        else:
            self._answer(200, b"" if self.command == "HEAD" else there, e_tag=self._tag(there), claim=len(there))

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    @staticmethod
    def _tag(data: bytes) -> str:
        return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def scripted(*, deaf: bool = False) -> Iterator[tuple[Objects, type[TinyS3]]]:
    class Here(TinyS3):
        pass

    Here.objects, Here.script, Here.deaf, Here.release = {}, {}, deaf, threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    config = {
        "endpoint": f"http://127.0.0.1:{server.server_port}",
        "region": "us-east-1",
        "access_key_id": "k",
        "secret_access_key": "s",
        "virtual_hosted_style_request": "false",
    }
    try:
        yield open_objects("s3://bucket", config), Here
    finally:
        Here.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def remote() -> Iterator[tuple[Objects, type[TinyS3]]]:
    pytest.importorskip("obstore", reason="pip install 'relight[objects]'")
    with scripted() as (store, server):
        assert store.make(within_s=W) == Made()
        yield store, server


def test_409_is_no_refusal_while_the_key_is_as_it_must_be(remote: tuple[Objects, type[TinyS3]]) -> None:
    store, server = remote
    server.script["PUT"] = ["409", "409"]
    version = written(store)
    server.script["PUT"] = ["409"]
    assert isinstance(store.put_if_version(KEY, b"2", version, within_s=W), Written)
    server.script["PUT"] = ["409"]
    assert store.put_if_absent(KEY, b"3", within_s=W) == Conflict()
    server.script["PUT"] = ["409"] * 1_000
    assert isinstance(store.put_if_absent("b", b"1", within_s=W), NotYet)


def test_a_put_whose_reply_was_lost_is_found_by_reading(remote: tuple[Objects, type[TinyS3]]) -> None:
    store, server = remote
    server.script["PUT"] = ["lost"]
    version = written(store)
    server.script["PUT"] = ["lost"]
    done = store.put_if_version(KEY, b"2", version, within_s=W)
    assert isinstance(done, Written)
    assert store.get(KEY, within_s=W) == Found(b"2", done.version)


def test_a_put_of_which_nothing_can_be_learned_is_not_yet(remote: tuple[Objects, type[TinyS3]]) -> None:
    store, server = remote
    server.script = {"PUT": ["lost"], "GET": ["403"]}
    assert isinstance(store.put_if_absent(KEY, b"1", within_s=W), NotYet)
    there = store.get(KEY, within_s=W)
    assert isinstance(there, Found)
    assert there.data == b"1"
    server.script = {"PUT": ["503"]}
    assert isinstance(store.put_if_absent("b", b"1", within_s=W), NotYet)
    assert store.get("b", within_s=W) == Missing()


@pytest.mark.parametrize("wrong", [["500"] * 4, ["403"], ["short"]], ids=lambda wrong: wrong[0])
def test_an_answer_that_is_none_is_neither_missing_nor_broken(
    wrong: list[str], remote: tuple[Objects, type[TinyS3]]
) -> None:
    store, server = remote
    version = written(store)
    server.script["GET"] = list(wrong)
    assert isinstance(store.get(KEY, within_s=W), NotYet)
    assert store.get(KEY, within_s=W) == Found(b"1", version)


def test_a_read_is_asked_again_and_a_put_is_not(remote: tuple[Objects, type[TinyS3]]) -> None:
    store, server = remote
    version = written(store)
    server.script = {"GET": ["500"], "PUT": ["500"]}
    assert store.get(KEY, within_s=W) == Found(b"1", version)
    assert isinstance(store.put_if_version(KEY, b"2", version, within_s=W), NotYet)
    assert store.get(KEY, within_s=W) == Found(b"1", version)


def test_missing_needs_a_store_that_is_there(remote: tuple[Objects, type[TinyS3]]) -> None:
    store, server = remote
    server.script["HEAD"] = ["403"]
    assert isinstance(store.get(KEY, within_s=W), NotYet)
    assert store.get(KEY, within_s=W) == Missing()
    server.objects.clear()
    assert isinstance(store.get(KEY, within_s=W), NotYet)


def test_a_server_that_never_answers_holds_no_caller(remote: tuple[Objects, type[TinyS3]]) -> None:
    store, server = remote
    server.script["PUT"] = ["hang"]
    assert isinstance(store.put_if_absent(KEY, b"1", within_s=SOON), NotYet)


def test_a_server_that_is_deaf_to_conditions_is_refused() -> None:
    pytest.importorskip("obstore", reason="pip install 'relight[objects]'")
    with scripted(deaf=True) as (store, _), pytest.raises(UserError, match="ignores conditions"):
        store.make(within_s=W)


def test_a_server_that_is_not_there_is_not_yet() -> None:
    pytest.importorskip("obstore", reason="pip install 'relight[objects]'")
    store = open_objects(
        "s3://bucket",
        {"endpoint": "http://127.0.0.1:1", "region": "us-east-1", "access_key_id": "k", "secret_access_key": "s"},
    )
    for answer in (
        store.make(within_s=W),
        store.get(KEY, within_s=W),
        store.put_if_absent(KEY, b"1", within_s=W),
        store.keys(within_s=W),
        store.delete(KEY, within_s=W),
    ):
        assert isinstance(answer, NotYet), answer
    assert Deleted() != store.delete(KEY, within_s=W)
