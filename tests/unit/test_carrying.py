"""One try to carry a notice: the site's command, apprise in a child, a beat for a dead man's switch. Gateways on loopback."""

import email
import email.policy
import os
import select
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sinks import http_sink, smtp_sink

from supervisor.telling import carrying
from supervisor.telling.carrier import UNKNOWN_URL
from supervisor.telling.carrying import by_command, by_url, fetch, hidden, understood
from supervisor.telling.notices import Notice

LIMIT_S = 60  # only a hang reaches it
TOLD = Notice("plan:8f", "plan", "demo", "relight demo: stopped", "one\ntwo\nrelight approve demo --plan 8f")


def carry(code, *args, deadline_s=LIMIT_S, story=""):
    command = [sys.executable, "-I", "-S", "-c", code, *map(str, args)]
    return by_command(command, TOLD, story, deadline_s)


def test_the_command_has_the_story_on_stdin_and_the_notice_in_its_environment(tmp_path):
    out = tmp_path / "out"
    code = "import os,sys; open(sys.argv[1],'w').write('|'.join([sys.stdin.read()]+[os.environ['RELIGHT_NOTICE_'+k] for k in sys.argv[2:]]))"
    assert carry(code, out, "KEY", "WHAT", "RUN", "TITLE", "BODY", story="a story\n").ok
    assert out.read_text() == f"a story\n|{TOLD.key}|{TOLD.what}|{TOLD.run}|{TOLD.title}|{TOLD.body}"
    assert carry(code, out).ok
    assert out.read_text() == TOLD.text


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('\\x1b[31mno gateway')", ": exit 1: no gateway"),
        ("import os; os.kill(os.getpid(), 9)", ": signal 9"),
        ("import sys; sys.stderr.write('A'*100000+'end'); sys.exit(3)", "Aend"),
    ],
)
def test_a_command_that_fails_says_why_in_one_line(code, why):
    outcome = carry(code)
    assert not outcome.ok
    assert outcome.why.endswith(why)
    assert "\x1b" not in outcome.why
    assert len(outcome.why) < 2 * carrying.WHY_MAX


@pytest.mark.parametrize("argv", [["/no/such/command"], [], ["x\0y"], ["/"]])
def test_a_command_that_cannot_be_started_never_raises(argv):
    outcome = by_command(argv, TOLD, "", LIMIT_S)
    assert not outcome.ok
    assert outcome.why


def test_a_command_that_hangs_is_killed_with_what_it_has_started(tmp_path):
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    code = (
        "import os,subprocess,sys,time;"
        "child=subprocess.Popen([sys.executable,'-I','-S','-c','import time;time.sleep(600)']);"
        "open(sys.argv[1],'w').write(f'{os.getpid()} {child.pid}');time.sleep(600)"
    )
    # The deadline is long enough for the pids to come; it is only waited for after that.
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(by_command, [sys.executable, "-I", "-S", "-c", code, str(pids)], TOLD, "", 3.0)
        watched = [os.pidfd_open(int(pid)) for pid in pids.read_text().split()]
    try:
        assert result.result(LIMIT_S).why.endswith("no end after 3 s; killed")
        for one in watched:
            assert select.select([one], [], [], LIMIT_S)[0] == [one]  # readable: that process has ended
    finally:
        for one in watched:
            os.close(one)


def test_a_command_that_does_not_read_a_long_story_still_ends_well():
    assert carry("pass", story="A" * 5_000_000).ok


def test_no_room_for_a_file_anywhere_keeps_no_notice(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")  # as where all disks are full
    assert carry("import sys; assert sys.stdin.read() == 'B' * 1_000_000", story="B" * 1_000_000).ok
    with http_sink() as sink:
        assert by_url(sink.url(), TOLD, LIMIT_S).ok


# --- apprise -------------------------------------------------------------------------------------------------------

SECRETS = ("us3rname", "passw0rd", "t0ps3cret")


def test_apprise_brings_title_and_lines_to_a_web_hook():
    with http_sink() as sink:
        assert by_url(sink.url(), TOLD, LIMIT_S) == carrying.Outcome(ok=True)
        method, path, said = sink.came.get_nowait()
    assert (method, path) == ("POST", "/t0ps3cret")
    assert (said["title"], said["message"]) == (TOLD.title, TOLD.body)


@pytest.mark.parametrize(("asked", "kinds"), [("", {"text/plain"}), ("&format=html", {"text/plain", "text/html"})])
def test_apprise_brings_a_mail_in_which_what_a_log_said_is_no_markup(asked, kinds):
    hostile = Notice(
        "k", "plan", "demo", "relight demo: stopped", "<script>x</script>\nsecond line\nrelight approve demo"
    )
    with smtp_sink() as sink:
        where = f"127.0.0.1:{sink.port}?from=relight@example.org&to=oncall@example.org&smtp=127.0.0.1&mode=insecure"
        assert by_url(f"mailto://{where}{asked}", hostile, LIMIT_S) == carrying.Outcome(ok=True)
        mail = email.message_from_bytes(sink.came.get_nowait(), policy=email.policy.default)
    assert (mail["subject"], mail["to"]) == (hostile.title, "oncall@example.org")
    parts = {p.get_content_type(): p.get_content() for p in mail.walk() if not p.is_multipart()}
    assert set(parts) == kinds
    assert all("second" in text and "line" in text for text in parts.values())
    if "text/html" in parts:
        assert "<script>" not in parts["text/html"]
        assert "&lt;script&gt;" in parts["text/html"]


def test_a_gateway_that_answers_500_is_told_without_its_secrets():
    with http_sink() as sink:
        sink.status = 500
        outcome = by_url(sink.url(), TOLD, LIMIT_S)
    assert not outcome.ok
    assert "500" in outcome.why
    assert not [s for s in SECRETS if s in outcome.why]


def test_a_mail_server_that_quotes_the_password_is_told_without_it():
    with smtp_sink() as sink:
        sink.status = 554
        url = f"mailto://127.0.0.1:{sink.port}/?from=a@example.org&to=b@example.org&smtp=127.0.0.1&mode=insecure&name=passw0rd"
        outcome = by_url(url, TOLD, LIMIT_S)
    assert not outcome.ok
    assert outcome.why
    assert "passw0rd" not in outcome.why


def test_a_gateway_that_hangs_is_given_up_at_the_deadline():
    with http_sink() as sink:
        sink.hangs = True
        outcome = by_url(sink.url(), TOLD, 3.0)
    assert outcome == carrying.Outcome(ok=False, why="no end after 3 s; killed")


def test_a_gateway_that_is_not_there_is_told_without_its_secrets():
    with http_sink() as sink:
        url = sink.url()
    outcome = by_url(url, TOLD, LIMIT_S)
    assert not outcome.ok
    assert outcome.why
    assert not [s for s in SECRETS if s in outcome.why]


def test_what_apprise_makes_of_a_url_is_asked_without_sending():
    with http_sink() as sink:
        assert understood(sink.url(), LIMIT_S).ok
        assert sink.came.empty()
    assert understood("nosuchgateway://us3rname", LIMIT_S) == carrying.Outcome(ok=False, why=UNKNOWN_URL)


def children_of(thread: str) -> list[str]:
    """None of a thread that has ended since it was listed."""
    try:
        return Path(f"/proc/self/task/{thread}/children").read_text().split()
    except FileNotFoundError:
        return []


def test_no_secret_is_on_a_command_line_or_in_an_environment():
    """While the child waits for a gateway that hangs, everybody on the machine may look at it."""
    with http_sink() as sink, ThreadPoolExecutor(1) as pool:
        sink.hangs = True
        going = pool.submit(by_url, sink.url(), TOLD, LIMIT_S)
        assert sink.calls.acquire(timeout=LIMIT_S)
        shown = b""
        children = [pid for thread in os.listdir("/proc/self/task") for pid in children_of(thread)]
        found = [pid for pid in children if b"supervisor.telling.carrier" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert found
        for pid in found:
            shown += Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        sink.held.set()
        assert going.result(LIMIT_S).ok
    assert not [s for s in SECRETS if s.encode() in shown]


@pytest.mark.parametrize(
    ("text", "url", "left"),
    [
        ("POST to https://hooks.slack.com/services/T0/B0/XyZ9 failed", "slack://T0/B0/XyZ9/#ops", ("XyZ9",)),
        ("user a%40b, a@b: no", "mailto://a%40bcd:pw1234@host.example?x=pw1234", ("pw1234", "bcd")),
        ("TOKEN-ABCDEF said no", "tgram://token-abcdef/1234", ("TOKEN", "ABCDEF")),
    ],
)
def test_pieces_of_a_url_are_hidden_in_whatever_case(text, url, left):
    assert not [piece for piece in left if piece in hidden(text, url)]
    assert "failed" in hidden(text, url) or "no" in hidden(text, url)


# --- a beat --------------------------------------------------------------------------------------------------------


def test_a_beat_is_an_answer_with_2xx():
    with http_sink() as sink:
        url = f"http://127.0.0.1:{sink.port}/ping/abc"
        assert fetch(url, LIMIT_S).ok
        assert sink.came.get_nowait()[:2] == ("GET", "/ping/abc")
        for status in (500, 404, 302):
            sink.status = status
            assert fetch(url, LIMIT_S) == carrying.Outcome(ok=False, why=f"HTTP {status}")
        sink.status, sink.hangs = 200, True
        assert not fetch(url, 2.0).ok
    assert not fetch(url, LIMIT_S).ok


def test_a_beat_never_opens_a_file():
    assert fetch("file:///etc/hostname", LIMIT_S) == carrying.Outcome(ok=False, why="not an http or https URL")
