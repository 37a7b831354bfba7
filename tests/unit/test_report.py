"""An incident as a document: everything on record is in it, what is not known is said, and nothing of a log is markup."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from builders import APPROVE, AUTO, training
from click.testing import CliRunner
from console_run import HOSTILE, Console, journaled, waiting
from test_story import open_plan
from test_story_example import DIGEST, at, ten_forty

from policies.facts import Rejected, Replay
from policies.history import Choice
from policies.reasons import Reason
from supervisor.commands.report import command
from supervisor.errors import UserError
from supervisor.journal.entries import (
    Approved,
    Carried,
    Chosen,
    Decided,
    HaltedEntry,
    IncidentOpened,
    Refused,
    Resumed,
    Stamped,
    Told,
    Withdrawn,
)
from supervisor.reporting import beside
from supervisor.telling.answers_told import KEPT, Said, sayings
from supervisor.telling.charts import POINTS_MAX, bar, losses
from supervisor.telling.document import POLICY, STYLE_HASH, Heading, Items, Lines, Picture, Table, Text, html, markdown
from supervisor.telling.incident_facts import Known
from supervisor.telling.report import Beside, report, unknowns

FIRST = tuple((step, 2.0 - step / 1e5) for step in range(41_201, 41_269))
PARTS = (
    "Story",
    "Times",
    "Evidence",
    "Suspects",
    "Plans and answers",
    "What was rejected",
    "Where the time went",
    "What it cost",
    "Losses of the replay over the first pass",
    "Samples read again",
    "What is not known",
    "What we change",
)


def text_of(**more):
    history, known = ten_forty()
    return markdown(report(history, 12, replace(known, now=at("12:00:00")), Beside(**more)))


def test_everything_that_is_on_record_is_in_it():
    said = (
        Said(at("10:40:22"), "planned", DIGEST, why="one suspect"),
        Said(at("10:52:30"), "approved", DIGEST, "li.wei"),
    )
    told = text_of(
        said=said, first=FIRST, again=FIRST, tokens_per_sample=4096, files=("story.txt", "evidence/exit/r.json")
    )
    assert re.findall(r"^## (.*)$", told, re.MULTILINE) == list(PARTS)
    for wanted in (
        "# llm500b: incident 12, stall (infrastructure)",
        "As of 2026-06-10 12:00:00 CST.",
        "| Stop noticed | 2026-06-10 02:40:18 | 2026-06-10 10:40:18 CST | 11 s |",
        "| NVRM: Xid 79, GPU has fallen off the bus. | 10:40:05 | n0417, rank 3338 |",
        "Kept: 640 stacks, 214 log excerpts, node states.",
        "* evidence/exit/r.json",
        "| n0417 | suspect, confidence 0.95 | barred | barred 2026-06-10 10:52:33 CST for good",
        "approved by li.wei at 2026-06-10 10:52:30 CST.",
        "| 2026-06-10 10:52:30 CST | Approved | 8f3a1c | li.wei |",
        "| 2026-06-10 10:40:22 CST | Plan made | 8f3a1c |   | one suspect |",
        "| a0012-i0041260 | still being written (512 of 5,120 files). |",
        "| waiting for approval | 12 min 8 s | 20% |",
        "| Tokens read again | 22,819,635,200 |",
        "| of these rolled back | 68 |",
        "68 losses laid over the first pass: all equal.",
        "5,571,200 samples: 3,380,838,400 to 3,386,409,599.",
    ):
        assert wanted in told
    assert told.endswith("|   |   |   |\n")


def test_the_pictures_are_in_the_html_alone():
    history, known = ten_forty()
    page = html(report(history, 12, known, Beside(first=FIRST, again=FIRST)))
    assert page.count("<svg") == 2
    assert "Where the time went: noticing 0:11" in page
    assert page.count("<circle") == len(FIRST)
    assert "<svg" not in text_of(first=FIRST, again=FIRST)


def test_what_is_not_known_is_said():
    history, known = ten_forty()
    one = history.incidents[0]
    lines = unknowns(history, one, known)
    assert lines == ["When: Confirmed; incident opened."]
    blank = replace(
        one, diagnosis=None, frontier_samples=0, times=replace(one.times, loaded=None), replay=None, barred=()
    )
    bare = replace(history, incidents=(blank,))
    assert unknowns(bare, blank, Known()) == [
        "No diagnosis was made.",
        "Whom to blame: no node can be named.",
        "How many samples had been read: nobody counted them.",
        "When: Confirmed; incident opened.",
        "When: Loaded.",
        "Whether the replay gave the same losses: there was no first pass to compare with.",
        "What it cost in GPU-hours: the layout is not at hand.",
    ]
    assert "Nobody can be named" in markdown(report(bare, 12, Known()))
    finding = replace(one.diagnosis.first[0], offset_bound=4.0, wall=None)
    unsure = replace(one, diagnosis=replace(one.diagnosis, first=(finding, finding), inferred=True))
    said = unknowns(history, unsure, known)
    assert "Which of 2 errors was first: the clocks cannot say." in said
    assert "When n0417, rank 3338 failed, to better than 4 s." in said
    assert "When n0417, rank 3338 failed: its line has no time." in said
    assert "The suspect wrote no error: it was inferred from what the others did." in said


def test_an_incident_that_is_open_lacks_only_what_has_been():
    history, known = ten_forty()
    history = open_plan(history)
    told = markdown(report(history, 12, known))
    assert "Open since" in told
    assert "When: Loaded" not in told
    assert "(8f3a1c" in told
    assert "not carried out." in told


def test_an_unknown_incident_is_one_line():
    with pytest.raises(LookupError, match="has no incident 99"):
        report(ten_forty()[0], 99, Known())


# --- nothing is markup ---------------------------------------------------------------------------------------------

NASTY = (
    HOSTILE
    + " [x](https://evil.example) ![i](http://evil.example/i.png) `code` **b** | cell | www.evil.example a@evil.example "
    "<img src=x onerror=alert(1)> &lt; <!-- --> javascript:alert(1) $x$ ~~s~~"
)
STARTS = ("# h", "* a", "- a", "+ a", "> q", "1. one", "1) one", "=====", "```", "    four", "| a |")


class Tags(HTMLParser):
    """Every tag, and every attribute that could do anything."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)


def nasty():
    history, known = ten_forty()
    one = history.incidents[0]
    first = replace(one.diagnosis.first[0], text=NASTY, node=NASTY, file=NASTY, line=3)
    diagnosis = replace(one.diagnosis, first=(first,), suspects=(NASTY,), cascade=NASTY, why=NASTY)
    trouble = replace(one.trouble, text=NASTY)
    hurt = replace(
        one, diagnosis=diagnosis, trouble=trouble, evidence=NASTY, rejected=(Rejected(NASTY, NASTY),), barred=(NASTY,)
    )
    hurt = replace(hurt, swaps=((1, NASTY, NASTY),), approved_by=NASTY)
    said = (Said(at("10:40:22"), "refused", NASTY, NASTY, NASTY),)
    curve = Beside(said, FIRST, FIRST, files=(NASTY,))
    return report(replace(history, run=NASTY, incidents=(hurt,)), 12, known, curve)


def test_nothing_of_a_log_is_markup_in_the_html():
    page = html(nasty())
    seen = Tags()
    seen.feed(page)
    assert not seen.tags & {
        "script",
        "img",
        "iframe",
        "object",
        "link",
        "a",
        "form",
        "input",
        "base",
        "video",
        "use",
        "image",
    }
    assert not [
        name for name in seen.attributes if name.startswith("on") or name in {"href", "src", "style", "xlink:href"}
    ]
    assert "javascript:alert(1)" in "".join(seen.text)  # it is there to be read
    assert not [c for c in page if c != "\n" and (ord(c) < 32 or c in "\u202e\x7f")]
    assert f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">' in page
    assert STYLE_HASH in POLICY


def test_nothing_of_a_log_is_markup_in_the_markdown():
    from markdown_it import MarkdownIt

    told = markdown(nasty())
    viewer = MarkdownIt("commonmark", {"html": True}).enable("table")
    kinds = {t.type for top in viewer.parse(told) for t in [top, *(top.children or ())]}
    assert not kinds & {
        "link_open",
        "image",
        "html_inline",
        "html_block",
        "em_open",
        "strong_open",
        "code_inline",
        "fence",
    }
    tables = viewer.render(told)
    assert tables.count("<table>") == markdown(report(*_plain())).count("\n|---")
    assert "<img" not in tables
    # GitHub makes links of bare addresses; behind a backslash it does not.
    prose = "\n".join(line for line in told.splitlines() if not line.startswith("    "))
    assert "https\\://evil" in prose
    assert not re.search(r"https?://|www\.|\w@", prose)


def _plain():
    history, known = ten_forty()
    return history, 12, known, Beside((Said(1.0, "refused"),), FIRST, FIRST, files=("x",))


@pytest.mark.parametrize("start", STARTS)
def test_a_text_that_begins_as_markup_is_text(start):
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown([Text(start)]))
    assert [t.type for t in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert [c.type for c in tokens[1].children] == ["text"] or all(
        c.type in {"text", "text_special"} for c in tokens[1].children
    )
    assert "".join(c.content for c in tokens[1].children) == start.strip()


def test_the_checker_sees_markup_that_is_not_escaped():
    from markdown_it import MarkdownIt

    kinds = {t.type for top in MarkdownIt().parse(f"x {NASTY}") for t in [top, *(top.children or ())]}
    assert {"link_open", "image", "strong_open"} <= kinds
    seen = Tags()
    seen.feed(f"<p>{NASTY}</p>")
    assert {"script", "img"} <= seen.tags
    assert "onerror" in seen.attributes


def test_every_block_has_both_forms():
    blocks = [
        Heading(2, "a"),
        Text("b"),
        Items(["c"]),
        Table(("d",), [("e",)]),
        Lines("  f\n g"),
        Picture("<svg/>", "h"),
    ]
    assert markdown(blocks) == "## a\n\nb\n\n* c\n\n| d |\n|---|\n| e |\n\n      f\n     g\n"
    page = html(blocks)
    for wanted in ("<h2>a</h2>", "<p>b</p>", "<li>c</li>", "<td>e</td>", "<pre>  f\n g</pre>", "<p>h</p>\n<svg/>"):
        assert wanted in page


# --- charts --------------------------------------------------------------------------------------------------------


def test_a_bar_is_as_long_as_its_parts():
    widths = [float(w) for w in re.findall(r'y="0" width="([\d.]+)"', bar([("a", 30.0), ("b", 60.0), ("c", 30.0)]))]
    assert widths == [180.0, 360.0, 180.0]
    assert bar([]) == ""
    assert bar([("a", 0.0)]) == ""
    assert bar([("a", float("inf"))]) == ""


def test_curves_share_one_scale():
    picture = losses([(1, 2.0), (2, 1.0)], [(1, 2.0), (2, 1.5)])
    (line,) = re.findall(r'points="([^"]*)"', picture)
    first, last = (tuple(map(float, p.split(","))) for p in line.split())
    dots = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', picture)]
    assert dots[0] == first
    assert dots[1][0] == last[0]
    assert first[1] < dots[1][1] < last[1]


@pytest.mark.parametrize("curve", [(), ((1, None),), ((1, float("nan")), (2, float("inf")))])
def test_without_a_number_there_is_no_picture(curve):
    assert losses(curve, FIRST) == ""
    assert losses(FIRST, curve) == ""


def test_a_long_curve_is_thinned_and_one_point_is_one_point():
    long = [(step, 1.0) for step in range(100_000)]
    picture = losses(long, long[:1])
    assert len(re.findall(r'points="([^"]*)"', picture)[0].split()) <= POINTS_MAX
    assert picture.count("<circle") == 1
    assert losses([(1, -1e308)], [(1, 1e308)]) == ""


# --- what people said ----------------------------------------------------------------------------------------------


def stamped(*entries):
    return [Stamped(n, 1, float(n), entry) for n, entry in enumerate(entries, 1)]


def test_what_was_planned_and_answered_is_kept_under_its_incident():
    scene = waiting("x")
    opened = next(s.entry for s in scene.stamped if isinstance(s.entry, IncidentOpened))
    decided = next(s.entry for s in scene.stamped if isinstance(s.entry, Decided) and s.entry.digest)
    later = replace(opened, number=2)
    entries = stamped(
        Told("a", "before"),
        opened,
        decided,
        Chosen(Choice("c1", ("n3",), ("n1",), ((1, 9),)), "li"),
        Withdrawn(decided.digest, "n3 is gone"),
        Refused("d2", "li", "not on this data"),
        HaltedEntry(Reason.REFUSED, "seen", "lifts", 1),
        Resumed("chen", "looked"),
        later,
        Approved("d3", "chen"),
        Carried("a", ("slack (urls 1)",), (), 1, given_up=False),
        Carried("a", (), (), 1, given_up=False),
    )
    found = sayings(entries)
    assert [(s.what, s.who, s.why) for s in found[1]] == [
        ("planned", "", decided.decision.text),
        ("changed", "li", "checkpoint c1; spare n3; keep n1; leave out samples 1 to 8"),
        ("withdrawn", "", "n3 is gone"),
        ("refused", "li", "not on this data"),
        ("halted", "", "plan-refused: seen"),
        ("resumed", "chen", "looked"),
    ]
    assert [(s.what, s.who, s.at) for s in found[2]] == [
        ("approved", "chen", 10.0),
        ("reached", "slack (urls 1)", 11.0),
    ]
    assert [s.why for s in found[0]] == ["before"]
    # Read in two pieces it is the same; and of a long story the newest is kept.
    assert sayings(entries[7:], sayings(entries[:7])) == found
    many = sayings(stamped(opened, *[Approved(str(n), "li") for n in range(200)]))
    assert len(many[1]) == KEPT
    assert many[1][-1].digest == "199"


# --- the command and the console -----------------------------------------------------------------------------------


def recovered():
    """A node is lost, and the run has caught up."""
    scene = training(AUTO)
    scene.lose("n1")
    scene.settle()
    return scene


def test_losses_of_both_passes_are_read_from_the_run(tmp_path):
    scene = recovered()
    run = journaled(tmp_path, scene)
    incident = scene.history.incidents[0]
    found = beside(run, scene.history, incident.number, ())
    start = scene.history.attempts[-1].start_step
    assert [s for s, _ in found.first] == list(range(start + 1, incident.frontier + 1))
    assert found.again
    assert set(found.again) <= set(found.first) | {(s, v) for s, v in found.again}
    Path(run.path("steps", "a0002.jsonl")).write_bytes(
        b'{"step": "x"}\n[]\n\xff\n{"step": 41, "loss": NaN}\n{"step": 42}\n'
    )
    assert beside(run, scene.history, incident.number, ()).again == ((41, None), (42, None))
    Path(run.path("steps", "a0001.jsonl")).unlink()
    assert beside(run, scene.history, incident.number, ()).first == ()


def test_the_command_prints_markdown_and_writes_html(tmp_path):
    run = journaled(tmp_path, waiting())
    printed = CliRunner().invoke(command, [run.root], standalone_mode=False)
    assert printed.exception is None
    assert "# demo: incident 1, node\\-lost" in printed.output or "# demo: incident 1, node-lost" in printed.output
    out = tmp_path / "r.html"
    written = CliRunner().invoke(command, [run.root, "1", "--html", "-o", str(out)], standalone_mode=False)
    assert written.output == f"{out}: incident 1 of demo\n"
    assert out.read_text().startswith("<!doctype html>")
    assert "<script" not in out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    for argv, why in (([run.root, "7"], "has no incident 7"), ([run.root, "-o", "/no/such/r.md"], "/no/such/r.md")):
        assert why in str(CliRunner().invoke(command, argv).exception)
    assert isinstance(CliRunner().invoke(command, [run.root, "7"]).exception, UserError)


def test_a_run_without_incidents_has_no_report(tmp_path):
    run = journaled(tmp_path, training(APPROVE))
    assert "it has none" in str(CliRunner().invoke(command, [run.root]).exception)


def test_the_console_gives_it_under_a_policy_of_its_own(tmp_path):
    journaled(tmp_path, waiting())
    with Console(tmp_path) as console:
        page = console.get("/api/runs/demo/incidents/1/report.html")
        told = console.get("/api/runs/demo/incidents/1/report.md")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert (told.status, told.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "sandbox" in policy
        assert "script-src" not in policy
        assert STYLE_HASH in policy
        assert "unsafe" not in policy
        assert "style-src" not in told.headers["content-security-policy"]
        assert page.text.startswith("<!doctype html>")
        assert "<script" not in page.text
        assert "Plan made" in told.text
        assert console.get("/api/runs/demo/incidents/9/report.html").status == 404
        assert console.get("/api/runs/demo/incidents/9/report.md").json()["detail"].startswith("demo has no incident 9")
        assert console.call("GET", "/api/runs/demo/incidents/1/report.html", None).status == 401


def test_a_replay_that_differs_is_told():
    history, known = ten_forty()
    one = replace(history.incidents[0], replay=Replay(68, 3, 0.25, 41_210, None))
    told = markdown(report(replace(history, incidents=(one,)), 12, known))
    assert "68 losses laid over the first pass: 3 differ, first at iteration 41,210" in told
