"""The page of `relight console`, in a real browser, over runs whose controller really answers."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from console_run import HOSTILE, journaled, waiting
from page_stage import ConsoleProcess, chromium, faults
from page_world import LARGE, LiveRun, Told

from policies.history import History
from supervisor import drill_files as drills

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
expect = sync_api.expect
expect.set_options(timeout=30_000)
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first one may have to install Chromium
    pytest.mark.xdist_group("page"),
]

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "screenshots"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
WAIT_MS = 30_000
VIEWS = ("now", "nodes", "line", "incidents", "saves", "ledgers")
QUESTIONS = ("approve", "change", "refuse", "halt")


@dataclass
class Stage:
    """A browser, a console over a folder of runs, and what must not have happened by the end of a test."""

    browser: Any
    console: ConsoleProcess
    root: Path
    allowed: set[int] = field(default_factory=set)
    cut: bool = False  # a test cuts the line: that the browser says so, perhaps later, is no fault
    seen: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    contexts: list[Any] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def page(self, size: dict[str, int] = DESKTOP, scheme: str = "dark") -> Any:
        """A page of its own, as of another person."""
        context = self.browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB", timezone_id="UTC")
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        page = context.new_page()
        page.on("request", lambda one: self.asked.add(one.url))
        page.on("pageerror", lambda error: self.seen.append(str(error)))
        page.on("console", self._said)
        return page

    def _said(self, message: Any) -> None:
        wanted = any(f"status of {status} " in message.text for status in self.allowed)
        wanted = wanted or (self.cut and "ERR_FAILED" in message.text)
        if message.type in {"error", "warning"} and not wanted:
            self.seen.append(message.text)

    def open(self, where: str, token: str = "", **how: Any) -> Any:
        """The page at a place, with an approver's token unless another is given."""
        page = self.page(**how)
        page.goto(f"{self.console.address}#token={token or self.console.approver}&{where}")
        return page

    @contextmanager
    def run(self, told: Told) -> Iterator[LiveRun]:
        """A run that goes on beside the test."""
        self.runs.append(told.name)
        with LiveRun(self.root, told) as one:
            self.known(told.name)
            yield one

    def known(self, name: str) -> None:
        """Wait until the console has found a run."""
        last = time.monotonic() + WAIT_MS / 1000
        while name not in self.console.runs():
            assert time.monotonic() < last
            time.sleep(0.05)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("page")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as playwright, ConsoleProcess(root) as console:
        browser = playwright.chromium.launch(executable_path=chromium())
        yield Stage(browser, console, root)
        browser.close()


@pytest.fixture
def stage(opened: Stage) -> Iterator[Stage]:
    """After each test: nothing came from another host, and the browser has complained of nothing."""
    opened.allowed.clear()
    opened.cut = False
    yield opened
    for context in opened.contexts:
        context.close()
    seen, asked = list(opened.seen), set(opened.asked)
    for name in opened.runs:
        shutil.rmtree(opened.root / name)
    for part in (opened.seen, opened.asked, opened.contexts, opened.runs):
        part.clear()
    assert seen == []
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(opened.console.address).netloc}
    assert not any("token" in url for url in asked)


def until(run: LiveRun, done: Callable[[History], object]) -> History:
    """The journal, once it says so."""
    last = time.monotonic() + WAIT_MS / 1000
    while not done(history := run.history):
        assert time.monotonic() < last, (history.decision, history.halted)
        time.sleep(0.05)
    return history


def lost(name: str, **more: Any) -> Told:
    """A run in which a node was lost a minute ago; the plan waits."""
    return Told(
        name=name,
        past_s=660,
        saves_at=(200.0, 400.0),
        events=((600, lambda run: run.world.lose_node("n0003")),),
        **more,
    )


# --- a decision ----------------------------------------------------------------------------------------------------


def test_an_incident_appears_without_reload_and_its_plan_is_approved_by_click(stage: Stage) -> None:
    with stage.run(Told(name="click", past_s=300, saves_at=(200.0,), step_s=0.5)) as run:
        page = stage.open("run=click")
        expect(page.locator("#headline")).to_contain_text("Training")
        assert "token" not in page.url
        page.screenshot(path=PICTURES / "training-desktop.png")
        page.evaluate("window.sameDocument = true")
        run.do(lambda world: world.lose_node("n0003"))
        page.locator("#do-approve").wait_for()
        expect(page.locator("#headline")).to_contain_text("Waits for you")
        expect(page.locator("#live")).to_contain_text("A decision waits: plan")
        expect(page.locator("[data-slot='3'].is-suspect")).to_be_visible()
        twice = "document.getElementById('do-approve').click(); getComputedStyle(document.getElementById('dialog'))"
        assert page.evaluate(f"{twice}.pointerEvents") == "none"  # a double click asks, and does not answer
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("n0008 takes slot 3 of n0003")
        page.get_by_role("dialog").get_by_role("button", name="Approve plan").click()
        expect(page.get_by_role("dialog")).to_contain_text("approved")
        page.get_by_role("button", name="Close").click()
        history = until(run, lambda h: h.incidents[0].closed)
        assert history.incidents[0].approved_by == "li.wei@127.0.0.1"
        assert history.attempts[1].slots[3] == "n0008"
        expect(page.locator("#headline")).to_contain_text("Training")
        assert page.evaluate("window.sameDocument") is True


def test_from_a_notice_with_the_keyboard_alone(stage: Stage) -> None:
    with stage.run(lost("keys")) as run:
        page = stage.page(PHONE)
        page.goto(f"{stage.console.address}#run=keys&plan={run.history.decision_digest}")
        keys = page.keyboard
        keys.type(stage.console.approver)
        keys.press("Tab")
        keys.press("Space")
        keys.press("Tab")
        keys.press("Enter")
        expect(page.locator("#plan")).to_be_focused()
        keys.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        keys.press("Escape")
        page.reload()  # the token was to be kept in this tab
        expect(page.locator("#plan")).to_be_focused()
        keys.press("Tab")
        expect(page.locator("#do-approve")).to_be_focused()
        keys.press("Enter")
        expect(page.get_by_role("button", name="Approve plan")).to_be_focused()
        keys.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("approved")
        keys.press("Escape")
        assert until(run, lambda h: len(h.attempts) == 2).incidents[0].approved_by == "li.wei@127.0.0.1"
        kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
        assert kept == [0, 1, ""]


def test_a_change_is_shown_before_it_is_approved(stage: Stage) -> None:
    with stage.run(lost("change")) as run:
        page = stage.open("run=change")
        page.locator("#do-change").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog).to_contain_text("Nothing is different")
        oldest = dialog.locator("select[name=checkpoint] option").last
        checkpoint = oldest.get_attribute("value")
        assert checkpoint is not None
        dialog.locator("select[name=checkpoint]").select_option(checkpoint)
        dialog.locator("select[name=spare-0]").select_option("n0009")
        dialog.get_by_label("Samples to leave out").fill("5000000-1")
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog).to_contain_text("is not FIRST:END")
        dialog.get_by_label("Samples to leave out").fill("5000000:5000100")
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog.get_by_role("heading", name="The plan as changed")).to_be_visible()
        told = dialog.locator(".changes li").all_inner_texts()
        assert any(checkpoint in line for line in told), told
        assert any("slot 3: n0008 -> n0009" in line for line in told), told
        assert any("5,000,000" in line for line in told), told
        assert len(run.history.attempts) == 1
        dialog.get_by_role("button", name="Approve plan").click()
        expect(dialog).to_contain_text("approved")
        history = until(run, lambda h: len(h.attempts) == 2)
        assert (history.incidents[0].plan_changed, history.attempts[1].checkpoint) == (True, checkpoint)
        assert history.attempts[1].slots[3] == "n0009"
        assert history.attempts[1].skip_samples == ((5_000_000, 5_000_100),)


def test_a_change_waits_for_what_can_be_chosen_from(stage: Stage) -> None:
    with stage.run(lost("slow")):
        page = stage.page()
        held = kept_back(page, "**/api/runs/slow/checkpoints")
        page.goto(f"{stage.console.address}#token={stage.console.approver}&run=slow")
        expect(page.locator("#plan")).to_contain_text("opens once the checkpoints and the spares have been read")
        expect(page.locator("#do-approve")).to_be_enabled()
        expect(page.locator("#do-change")).to_be_disabled()
        page.keyboard.press("c")
        expect(page.get_by_role("dialog")).to_have_count(0)
        has_come(page, held)
        held.pop().continue_()
        page.locator("#do-change").click()
        expect(page.get_by_role("dialog").get_by_label("Start from")).to_be_visible()


def test_a_change_tells_that_the_store_cannot_be_read(stage: Stage) -> None:
    unread = {"known": False, "as_of": None, "saves": [], "being_written": [], "free_bytes": None, "way_back": None}
    with stage.run(lost("blind")) as run:
        page = stage.page()
        page.route("**/api/runs/blind/checkpoints", lambda route: route.fulfill(json=unread))
        page.goto(f"{stage.console.address}#token={stage.console.approver}&run=blind")
        page.locator("#do-change").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("the controller takes up a change once it can be read")
        dialog.locator("select[name=spare-0]").select_option("n0009")
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog.get_by_role("heading", name="The plan as changed")).to_be_visible()
        until(run, lambda h: h.choice.spares)


def test_a_node_is_kept(stage: Stage) -> None:
    with stage.run(lost("keep")) as run:
        page = stage.open("run=keep")
        page.locator("#do-change").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("checkbox", name="n0003").check()
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
        until(run, lambda h: h.choice.keep_nodes == ("n0003",))


def test_a_refusal_takes_a_reason_and_a_halt_is_lifted_with_one(stage: Stage) -> None:
    with stage.run(lost("refuse")) as run:
        page = stage.open("run=refuse")
        page.locator("#do-refuse").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("A no halts the run")
        dialog.get_by_role("button", name="Refuse plan").click()
        assert not run.history.refused
        dialog.get_by_label("Reason").fill("not on this data")
        dialog.get_by_role("button", name="Refuse plan").click()
        expect(dialog).to_contain_text("refused; the run halts")
        page.keyboard.press("Escape")
        expect(page.locator("#headline")).to_contain_text("Halted")
        expect(page.locator(".headline")).to_contain_text("Lifted by: relight resume")
        page.screenshot(path=PICTURES / "halted-desktop.png")
        assert until(run, lambda h: h.halted).incidents[0].plan_refused
        page.locator("#do-resume").click()
        dialog.get_by_label("Reason").fill("looked at it")
        dialog.get_by_role("button", name="Resume refuse").click()
        expect(dialog).to_contain_text("the halt is lifted")
        until(run, lambda h: h.halted is None)


def test_a_stale_plan_is_refused_and_what_changed_is_shown(stage: Stage) -> None:
    stage.allowed.add(409)
    with stage.run(lost("stale")) as run:
        page = stage.open("run=stale")
        page.locator("#do-approve").click()
        before = run.history.decision_digest
        other = stage.open("run=stale")
        other.locator("#do-change").wait_for()
        said = other.evaluate(
            "async () => (await import('/page/api.js')).ask('/api/runs/stale/plan/change', {spares: ['n0009']})"
        )
        assert said["state"] == "done"
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Approve plan").click()
        expect(dialog.get_by_role("heading", name="The plan has changed")).to_be_visible()
        expect(dialog.locator(".changes")).to_contain_text("slot 3: n0008 -> n0009")
        page.screenshot(path=PICTURES / "stale-desktop.png")
        assert not run.history.approvals
        now = run.history.decision_digest
        assert now is not None
        dialog.get_by_role("button", name=f"Approve plan {now[:6]}").click()
        expect(dialog).to_contain_text(f"plan {now[:6]} approved")
        assert until(run, lambda h: len(h.attempts) == 2).attempts[1].slots[3] == "n0009"
        link = stage.open(f"run=stale&plan={before}")
        expect(link.locator("main")).to_contain_text("is no longer open")


def test_two_tabs_show_the_same_and_a_pause_is_asked_for_with_a_reason(stage: Stage) -> None:
    with stage.run(Told(name="tabs", past_s=300)) as run:
        one, two = stage.open("run=tabs"), stage.open("run=tabs", size=PHONE)
        for page in (one, two):
            expect(page.locator("#headline")).to_contain_text("Training")
        one.locator("#do-pause").click()
        one.get_by_role("dialog").get_by_label("Reason").fill("a look at the switches")
        one.get_by_role("dialog").get_by_role("button", name="Pause tabs").click()
        for page in (one, two):
            expect(page.locator("#headline")).to_contain_text("Paused")
        assert until(run, lambda h: h.paused)
        run.leave()
        for page in (one, two):
            expect(page.locator("#warnings")).to_contain_text("No controller is alive")
            expect(page.locator("#headline")).to_contain_text("Nobody watches")


# --- who may, and what is hostile ----------------------------------------------------------------------------------


def test_a_wrong_token_is_told_so_and_a_viewer_may_only_look(stage: Stage) -> None:
    stage.allowed |= {401, 403}
    with stage.run(lost("door")) as run:
        page = stage.open("run=door", token="relight_00000000_" + "A" * 43)
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("Token").fill(stage.console.viewer)
        page.get_by_role("button", name="Come in").click()
        expect(page.locator("#do-approve")).to_be_disabled()
        expect(page.locator("#plan")).to_contain_text("This token may only look")
        expect(page.locator("#do-halt")).to_be_disabled()
        page.keyboard.press("a")
        expect(page.get_by_role("dialog")).to_have_count(0)
        said = page.evaluate(
            "async () => { try { await (await import('/page/api.js')).ask('/api/runs/door/halt', {why: 'x'}) }"
            " catch (error) { return error.message } }"
        )
        assert said == "This token may only look."
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.get_by_role("button", name="Leave").click()
        expect(page.get_by_label("Token")).to_be_focused()
        assert "door" not in page.locator("body").inner_text()
        assert not run.history.halted


def test_a_refusal_that_comes_late_does_not_send_the_next_one_out(stage: Stage) -> None:
    stage.allowed |= {401}
    with stage.run(Told(name="late", past_s=300)):
        page = stage.page()
        held: list[Any] = []

        def hold(route: Any) -> None:
            """Of the first two questions, with the wrong token, one is answered only when the right one is in use."""
            held.append(route) if not held else route.continue_()

        page.route("**/api/runs", hold)
        page.goto(f"{stage.console.address}#token=relight_00000000_{'A' * 43}&run=late")
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("Token").fill(stage.console.viewer)
        page.get_by_role("button", name="Come in").click()
        expect(page.locator("#headline")).to_contain_text("Training")
        has_come(page, held)
        with page.expect_response(lambda came: came.url.endswith("/api/runs") and came.status == 200):
            held[0].continue_()  # and once it has come, the page goes on asking
        expect(page.locator("#headline")).to_contain_text("Training")
        expect(page.get_by_label("Token")).to_have_count(0)


def hostile(root: Path, name: str) -> None:
    """A run whose earliest error, cascade, node check and halt are all hostile text."""
    scene = waiting()
    for place, one in enumerate(scene.stamped):
        diagnosis = getattr(one.entry, "diagnosis", None)
        if diagnosis is not None:
            first = (replace(diagnosis.first[0], text=HOSTILE, file=HOSTILE),)
            bad = replace(diagnosis, first=first, cascade=HOSTILE, why=HOSTILE)
            scene.stamped[place] = replace(one, entry=replace(one.entry, diagnosis=bad))
    run = journaled(root, scene, name)
    status = json.loads(Path(run.path("status.json")).read_text())
    status["text"] = status["held"] = HOSTILE
    status["view"]["nodes"]["n0"]["unhealthy"] = [HOSTILE]
    Path(run.path("status.json")).write_text(json.dumps(status))


INLINE = """() => {
  const made = document.createElement('script');
  try { made.append('window.hurt = true'); document.body.append(made); } catch { /* refused */ }
  return 'hurt' in window;
}"""


def test_hostile_text_stays_text(stage: Stage) -> None:
    hostile(stage.root, "hostile")
    stage.known("hostile")
    stage.runs.append("hostile")
    page = stage.open("run=hostile")
    seen = ""
    for where in ("run=hostile", *(f"run=hostile&view={view}" for view in VIEWS), "run=hostile&incident=1"):
        page.goto(f"{stage.console.address}#{where}")
        page.locator("main > :not([data-key=wait])").first.wait_for()
        seen += page.locator("body").inner_text()
        assert page.evaluate(
            "[document.scripts.length, document.querySelectorAll('main script, main pre ~ script').length]"
        ) == [1, 0]
    expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
    assert "<script>alert(1)</script>" in seen
    assert not {c for c in HOSTILE if ord(c) < 32 or ord(c) > 0x2000} & set(seen)
    with pytest.raises(sync_api.Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    hurt = page.evaluate(INLINE)
    assert hurt is False
    assert stage.seen
    assert all("This document requires 'Trusted" in one for one in stage.seen)  # the browser says what it has refused
    stage.seen.clear()


def test_what_is_of_another_host_is_refused_and_the_complaint_is_seen(stage: Stage) -> None:
    page = stage.page()
    page.goto(stage.console.address)
    page.get_by_label("Token").wait_for()
    with pytest.raises(sync_api.Error, match="Failed to fetch"):
        page.evaluate("fetch('http://127.0.0.2:1/x')")
    assert any("Content Security Policy" in one for one in stage.seen)
    stage.seen.clear()
    stage.asked = {url for url in stage.asked if "127.0.0.2" not in url}


def test_a_console_that_is_silent_is_loud(stage: Stage) -> None:
    journaled(stage.root, waiting(), "silent")
    stage.known("silent")
    stage.runs.append("silent")
    page = stage.page(PHONE)
    page.clock.install()
    page.goto(f"{stage.console.address}#token={stage.console.approver}&run=silent")
    expect(page.locator("#warnings")).to_contain_text("No controller is alive")
    expect(page.locator("#warnings")).not_to_contain_text("This page is old")
    stage.cut = True
    page.route("**/api/**", lambda route: route.abort())
    page.clock.fast_forward(11_000)
    expect(page.locator("#warnings")).to_contain_text("This page is old. The console has not answered since")
    page.screenshot(path=PICTURES / "old-phone.png")
    page.unroute("**/api/**")
    page.clock.fast_forward(5_000)
    expect(page.locator("#warnings")).not_to_contain_text("This page is old")


# --- what comes late, and what changes under a finger ------------------------------------------------------------------


def standing(stage: Stage, *names: str) -> None:
    """Runs whose plan is open, and of which nothing moves."""
    for name in names:
        journaled(stage.root, waiting(), name)
        stage.known(name)
        stage.runs.append(name)


def amended(page: Any, where: str, amend: Callable[[Any], None]) -> None:
    """Answers of the console as if something else had happened."""

    def answer(route: Any) -> None:
        came = route.fetch()
        told = came.json()
        amend(told)
        route.fulfill(response=came, json=told)

    page.route(where, answer)


def kept_back(page: Any, where: str) -> list[Any]:
    """Questions that get no answer, until a test gives one."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route(where, hold)
    return held


def has_come(page: Any, held: list[Any]) -> None:
    """Until the first of them is held."""
    last = time.monotonic() + WAIT_MS / 1000
    while not held:
        assert time.monotonic() < last
        page.wait_for_timeout(50)


def refused(digest: str) -> dict[str, Any]:
    """The controller's no to a plan that has changed."""
    text = "plan 000000 is not the open one"
    return {"state": "refused", "text": text, "exit": 4, "plan": digest, "changed": ["slot 3: n0008 -> n0009"]}


DIGEST = "async (run) => (await (await import('/page/api.js')).get(`/api/runs/${run}/plan`)).digest"


def test_a_page_whose_questions_hang_is_old_though_its_stream_flows(stage: Stage) -> None:
    with stage.run(Told(name="starved", past_s=300, step_s=0.5)):
        page = stage.open("run=starved")
        expect(page.locator("#headline")).to_contain_text("Training")
        stage.cut = True
        page.route("**/api/**", lambda route: route.fallback() if "/events" in route.request.url else route.abort())
        expect(page.locator("#warnings")).to_contain_text("This page is old")
        page.wait_for_timeout(2_000)
        expect(page.locator("#warnings")).to_contain_text("This page is old")


def test_a_clock_that_is_set_back_hides_no_silence_and_a_sleep_makes_all_old(stage: Stage) -> None:
    standing(stage, "clock")
    page = stage.page()
    page.clock.install()
    page.goto(f"{stage.console.address}#token={stage.console.approver}&run=clock")
    page.locator(".wall").wait_for()
    with page.expect_request("**/nodes", timeout=10_000):
        page.clock.set_system_time(time.time() + 8 * 3600)
    page.wait_for_timeout(1_000)
    page.clock.set_system_time(time.time() - 3600)
    page.wait_for_timeout(2_000)
    stage.cut = True
    page.route("**/api/**", lambda route: route.abort())
    page.clock.fast_forward(11_000)
    expect(page.locator("#warnings")).to_contain_text("This page is old")


def test_a_console_that_answers_with_what_it_read_long_ago_is_old(stage: Stage) -> None:
    standing(stage, "frozen")
    page = stage.page()
    page.clock.install()
    first = time.time()
    amended(page, "**/api/runs/frozen", lambda told: told.update(now=first))
    page.goto(f"{stage.console.address}#token={stage.console.approver}&run=frozen")
    page.locator("#do-approve").wait_for()
    with page.expect_response("**/api/runs/frozen"):
        page.clock.fast_forward(11_000)
    expect(page.locator("#warnings")).to_contain_text("has read nothing of this run since")
    expect(page.locator(".pulse")).to_contain_text("silent")
    page.unroute("**/api/runs/frozen")
    expect(page.locator("#warnings")).not_to_contain_text("This page is old")


def test_a_no_is_told_though_the_new_plan_cannot_be_read(stage: Stage) -> None:
    stage.allowed.add(409)
    standing(stage, "unread")
    page = stage.open("run=unread")
    page.locator("#do-approve").click()
    digest = page.evaluate(DIGEST, "unread")
    page.route("**/plan/approve", lambda route: route.fulfill(status=409, json=refused(digest)))
    stage.cut = True
    page.route("**/checkpoints", lambda route: route.abort())
    page.get_by_role("button", name="Approve plan").click()
    expect(page.get_by_role("dialog").get_by_role("heading", name="Refused")).to_be_visible()
    expect(page.get_by_role("dialog")).to_contain_text("is not the open one")


def test_a_question_ends_with_its_run_and_its_answer_waits_for_the_next_question(stage: Stage) -> None:
    stage.allowed.add(409)
    standing(stage, "left", "other")
    page = stage.open("run=left")
    page.locator("#do-approve").click()
    digest = page.evaluate(DIGEST, "left")
    held = kept_back(page, "**/plan/approve")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Approve plan").click()
    expect(dialog).to_contain_text("waiting for the controller's answer")
    page.evaluate("location.hash = '#run=other'")
    expect(page.locator(".run-name")).to_have_text("other")
    expect(dialog).to_have_count(0)
    page.locator("#do-halt").click()
    dialog.get_by_label("Reason").fill("half a reason")
    has_come(page, held)
    held[0].fulfill(status=409, json=refused(digest))
    page.wait_for_timeout(1_000)
    expect(dialog.get_by_label("Reason")).to_have_value("half a reason")
    page.keyboard.press("Escape")
    expect(dialog.get_by_role("heading", name="Refused: left")).to_be_visible()
    expect(dialog.get_by_role("button", name="Approve plan")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_what_is_read_for_a_run_that_was_left_is_not_shown_as_of_the_next(stage: Stage) -> None:
    stage.allowed.add(409)
    standing(stage, "first", "second")
    page = stage.open("run=first")
    page.locator("#do-approve").click()
    digest = page.evaluate(DIGEST, "first")
    page.route("**/plan/approve", lambda route: route.fulfill(status=409, json=refused(digest)))
    amended(page, "**/first/plan", lambda told: told.update(digest="f" * 32))
    held = kept_back(page, "**/first/checkpoints")
    page.get_by_role("button", name="Approve plan").click()
    page.wait_for_timeout(1_000)
    has_come(page, held)
    page.evaluate("location.hash = '#run=second'")
    expect(page.locator("#plan")).to_contain_text(f"Plan {page.evaluate(DIGEST, 'second')[:6]}")
    kept_back(page, "**/second/plan")
    for route in held:
        route.continue_()
    page.wait_for_timeout(1_000)
    assert "Plan ffffff" not in page.locator("#plan").inner_text()


def test_keys_do_nothing_behind_a_question(stage: Stage) -> None:
    standing(stage, "behind", "beside")
    page = stage.open("run=behind")
    page.locator("#do-approve").click()
    kept_back(page, "**/plan/approve")
    page.get_by_role("button", name="Approve plan").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("waiting for the controller's answer")
    page.keyboard.press("r")
    page.keyboard.press("u")
    expect(page.locator(".run-name")).to_have_text("behind")
    expect(dialog).to_contain_text("waiting for the controller's answer")


def test_a_key_that_is_held_asks_and_does_not_answer(stage: Stage) -> None:
    standing(stage, "held")
    page = stage.open("run=held")
    asked: list[str] = []

    def ask(route: Any) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route("**/plan/approve", ask)
    page.locator("#do-approve").focus()
    for _ in range(6):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    expect(page.get_by_role("button", name="Approve plan")).to_be_visible()
    assert asked == []


CALM = """async () => {
  const { show } = await import('/page/answer.js');
  const box = document.getElementById('dialog');
  show('One');
  await new Promise((done) => setTimeout(done, 800));
  const before = getComputedStyle(box).pointerEvents;
  show('Two');
  return [before, getComputedStyle(box).pointerEvents];
}"""


def test_an_impatient_second_tap_does_not_approve_the_plan_as_changed(stage: Stage) -> None:
    stage.allowed.add(409)
    standing(stage, "tap")
    page = stage.open("run=tap")
    page.locator("#do-approve").click()
    digest = page.evaluate(DIGEST, "tap")
    page.route("**/plan/approve", lambda route: route.fulfill(status=409, json=refused(digest)))
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Approve plan").click()
    expect(dialog.get_by_role("heading", name="The plan has changed")).to_be_focused()
    expect(dialog.get_by_role("button", name="Approve plan")).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate(CALM) == ["auto", "none"]


def test_an_older_status_is_not_shown_over_what_the_stream_has_told(stage: Stage) -> None:
    with stage.run(Told(name="order", past_s=300, saves_at=(200.0,))) as run:
        page = stage.open("run=order")
        expect(page.locator("#headline")).to_contain_text("Training")
        page.evaluate(
            "window.said = []; new MutationObserver(() => said.push(document.getElementById('live').textContent))"
            ".observe(document.getElementById('live'), { childList: true, characterData: true, subtree: true })"
        )
        held: list[tuple[Any, Any]] = []

        def hold(route: Any) -> None:
            if held:
                route.fallback()
            else:
                held.append((route, route.fetch()))

        page.route("**/api/runs/order", hold)
        has_come(page, held)
        run.do(lambda world: world.lose_node("n0003"))
        expect(page.locator("#live")).to_contain_text("A decision waits: plan")
        with page.expect_response(lambda came: came.url.endswith("/api/runs/order")):
            held[0][0].fulfill(response=held[0][1])
        page.wait_for_timeout(1_500)
        assert not [one for one in page.evaluate("said") if "is closed" in one]
        expect(page.locator("#headline")).to_contain_text("Waits for you")


def reads_anew(page: Any, name: str) -> None:
    """Until the page shows what is answered from now on."""
    for _ in range(2):  # the first may have been asked for before
        with page.expect_response(lambda came: came.url.endswith(f"/api/runs/{name}")):
            pass
    page.wait_for_timeout(500)


def test_a_change_is_not_asked_of_another_plan_than_was_read(stage: Stage) -> None:
    standing(stage, "moved")
    page = stage.open("run=moved")
    page.locator("#do-change").click()
    asked = kept_back(page, "**/plan/change")
    amended(page, "**/api/runs/moved", lambda told: told["glance"].update(plan="f" * 32))
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Samples to leave out").fill("5000000:5000100")
    reads_anew(page, "moved")
    dialog.get_by_role("button", name="Show what changes").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is no longer the open one")
    assert asked == []


def test_who_lifts_a_pause_does_not_lift_a_halt_that_came_meanwhile(stage: Stage) -> None:
    standing(stage, "lift")
    page = stage.page()
    page.route("**/events", lambda route: route.fulfill(status=200, body=""))
    glance: dict[str, Any] = {"paused": True}
    amended(page, "**/api/runs/lift", lambda told: told["glance"].update(glance))
    page.goto(f"{stage.console.address}#token={stage.console.approver}&run=lift")
    page.locator("#do-resume").click()
    asked = kept_back(page, "**/resume")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("looked at it")
    glance["halted"] = "attempts-spent"
    reads_anew(page, "lift")
    dialog.get_by_role("button", name="Resume lift").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has halted meanwhile")
    assert asked == []


def test_that_a_report_cannot_be_had_stays_told(stage: Stage) -> None:
    stage.allowed.add(503)
    standing(stage, "report")
    page = stage.open("run=report&incident=1")
    page.route("**/report.md", lambda route: route.fulfill(status=503, body="no"))
    page.get_by_role("button", name="Report as Markdown").click()
    page.wait_for_timeout(3_000)
    expect(page.locator("main")).to_contain_text("The report can't be had", timeout=2_000)


BUTTONS = """async () => {
  const { patch } = await import('/page/dom.js');
  const { commands } = await import('/page/answer.js');
  const { planCard } = await import('/page/plan.js');
  const { get } = await import('/page/api.js');
  const status = await get('/api/runs/buttons');
  const plan = await get('/api/runs/buttons/plan');
  const place = document.createElement('div');
  const show = (glance, can) => patch(place,
    commands({ run: 'buttons', may: true, status: { glance: { ...status.glance, ...glance } } }),
    planCard({ run: 'buttons', may: true, plan: { ...plan, page: { ...plan.page, commands: can } } }));
  show({ paused: false }, { approve: '', checkpoint: '', refuse: '' });
  const [pause, approve] = ['pause', 'approve'].map((one) => place.querySelector(`#do-${one}`));
  show({ paused: true }, { checkpoint: '', refuse: '' });
  return [pause.id, approve.id];
}"""


def test_a_button_never_becomes_another_one(stage: Stage) -> None:
    standing(stage, "buttons")
    page = stage.open("run=buttons")
    page.locator("#do-approve").wait_for()
    assert page.evaluate(BUTTONS) == ["do-pause", "do-approve"]


HIDE = """(hidden) => {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_tab_that_is_not_seen_keeps_no_stream(stage: Stage) -> None:
    standing(stage, "hidden")
    page = stage.page()
    with page.expect_request("**/events"):
        page.goto(f"{stage.console.address}#token={stage.console.approver}&run=hidden")
    page.locator("#do-approve").wait_for()
    with page.expect_event("requestfailed", lambda one: one.url.endswith("/events")):
        page.evaluate(HIDE, True)
    with page.expect_request("**/events"):
        page.evaluate(HIDE, False)


def test_a_plan_that_opens_later_does_not_take_the_focus(stage: Stage) -> None:
    standing(stage, "focus")
    page = stage.page()
    page.route("**/events", lambda route: route.fulfill(status=200, body=""))
    amended(page, "**/api/runs/focus", lambda told: told["glance"].update(plan=None))
    page.goto(f"{stage.console.address}#token={stage.console.approver}&run=focus&plan=abcdef")
    expect(page.locator("main")).to_contain_text("No plan is open now")
    page.locator("#do-halt").focus()
    page.unroute("**/api/runs/focus")
    page.locator("#do-approve").wait_for()
    page.wait_for_timeout(500)
    expect(page.locator("#do-halt")).to_be_focused()


def test_what_cannot_be_drawn_is_said_and_not_left_as_it_was(stage: Stage) -> None:
    standing(stage, "drawn", "undrawn")
    page = stage.open("run=drawn")
    page.locator("#do-approve").wait_for()
    amended(page, "**/undrawn/nodes", lambda told: told.update(slots=None))
    page.evaluate("location.hash = '#run=undrawn'")
    expect(page.locator("main")).to_contain_text("can't be drawn")
    expect(page.locator("main h1")).to_have_count(0)
    page.close()
    assert stage.seen  # the browser's log has the error itself
    stage.seen.clear()


def test_of_what_cannot_be_read_all_is_said_and_nothing_of_another_view(stage: Stage) -> None:
    stage.allowed |= {404, 503}
    standing(stage, "troubles")
    page = stage.page()
    page.route("**/nodes", lambda route: route.fulfill(status=503, json={"detail": "no disk"}))
    page.route("**/losses?*", lambda route: route.fulfill(status=503, json={"detail": "no rows"}))
    page.goto(f"{stage.console.address}#token={stage.console.approver}&run=troubles")
    expect(page.locator("#warnings")).to_contain_text("nodes: no disk")
    expect(page.locator("#warnings")).to_contain_text("losses: no rows")
    page.evaluate("location.hash = '#run=troubles&incident=99'")
    expect(page.locator("#warnings")).to_contain_text("incident:")
    page.evaluate("location.hash = '#run=troubles&view=saves'")
    expect(page.get_by_role("heading", name="Checkpoints")).to_be_visible()
    expect(page.locator("#warnings")).not_to_contain_text("A part can't be shown", timeout=3_000)


MOVES = """async () => {
  const { h, patch } = await import('/page/dom.js');
  const place = document.createElement('div');
  document.body.append(place);
  const show = (...keys) => patch(place, keys.map((key) => h('button', { 'data-key': key }, key)));
  show('a', 'b', 'c');
  place.children[2].focus();
  show('c', 'a', 'b');
  const told = document.activeElement.textContent;
  place.remove();
  return told;
}"""


def test_what_moves_keeps_the_focus(stage: Stage) -> None:
    page = stage.page()
    page.goto(stage.console.address)
    page.get_by_label("Token").wait_for()
    assert page.evaluate(MOVES) == "c"


# --- 640 nodes, pictures, axe --------------------------------------------------------------------------------------

DRAWN = """async () => {
  const began = performance.now();
  const doc = await (await import('/page/api.js')).get('/api/runs/llm500b/nodes');
  const read = performance.now();
  const made = (await import('/page/wall.js')).wall(doc, 1100, () => {});
  document.body.append(made);
  made.getBoundingClientRect();
  const drawn = performance.now();
  made.remove();
  return [Math.round(read - began), Math.round(drawn - read)];
}"""


STAYS = """async () => {
  const { patch } = await import('/page/dom.js');
  const { wall } = await import('/page/wall.js');
  const { lists } = await import('/page/nodes.js');
  const doc = await (await import('/page/api.js')).get('/api/runs/pressed/nodes');
  const place = document.createElement('div');
  const show = (now) => patch(place, wall(now, 900, () => {}), lists(now, 'pressed'));
  show(doc);
  const cell = place.querySelector("[data-slot='3']");
  const link = place.querySelector("a[href$='n0003']");
  for (const slot of doc.slots) if (slot.slot !== 3) slot.holder.state = 'silent';
  show(doc);
  return [place.contains(cell), cell.dataset.slot, place.contains(link), link.textContent];
}"""


def test_what_is_pressed_stays_what_it_was_when_others_come_before_it(stage: Stage) -> None:
    with stage.run(lost("pressed")):
        page = stage.open("run=pressed")
        expect(page.locator("[data-slot='3'].is-suspect")).to_be_visible()
        assert page.evaluate(STAYS) == [True, "3", True, "n0003"]


def test_six_hundred_and_forty_nodes_are_drawn(stage: Stage) -> None:
    told = Told(
        name="llm500b",
        layout=LARGE,
        spares=16,
        past_s=2400,
        saves_at=(600.0, 1200.0),
        events=(
            (1300, lambda run: run.world.lose_node("n0222")),
            (1420, LiveRun.approve),
            (2300, lambda run: run.world.lose_node("n0417")),
        ),
    )
    with stage.run(told):
        began = time.monotonic()
        page = stage.open("run=llm500b")
        page.locator(".wall").wait_for()
        page.locator("#do-approve").wait_for()
        whole = time.monotonic() - began
        read, drawn = page.evaluate(DRAWN)
        print(
            f"\n640 nodes: {whole:.2f} s from the first byte to wall and plan; {read} ms to read them, {drawn} ms to draw"
        )
        assert page.locator(".wall [data-slot]").count() == 640
        expect(page.locator("[data-slot='417'].is-suspect")).to_be_visible()
        page.locator(".curve").wait_for()
        page.screenshot(path=PICTURES / "640-desktop.png", full_page=True)
        picture = {"x": 0, "y": 0, "width": DESKTOP["width"], "height": 1195}
        page.screenshot(path=PICTURES / "console.png", full_page=True, clip=picture)
        page.locator("[data-slot='417']").click()
        expect(page.locator("#node")).to_contain_text("Suspect of incident 2")
        expect(page.locator("#node")).to_be_focused()
        page.goto(f"{stage.console.address}#run=llm500b&view=nodes&node=n0222")
        expect(page.locator("#node")).to_contain_text("Barred")
        page.get_by_text("All slots as a table").click()
        assert page.locator("table tbody tr").count() == 640
        phone = stage.open("run=llm500b", size=PHONE)
        phone.locator(".wall").wait_for()
        phone.locator(".curve").wait_for()
        assert phone.evaluate("document.documentElement.scrollWidth") == 360
        phone.screenshot(path=PICTURES / "640-phone.png", full_page=True)


DRILL = drills.Drill(
    number=1,
    kind="shared",
    level="bytes",
    checkpoint="a0001-i0001191",
    bytes=7_000_000,
    began_at=time.time() - 7_260,
    ended_at=time.time() - 7_200,
    parts={"choose": 0.1, "fetch": 1.5, "read": 58.4},
    ok=True,
)


def test_axe_finds_no_serious_fault_on_any_view(stage: Stage) -> None:
    told = Told(
        name="llm7b",
        past_s=2400,
        saves_at=(600.0, 1200.0, 1790.0),
        events=(
            (1300, lambda run: run.world.lose_node("n0001")),
            (1420, LiveRun.approve),
            (2300, lambda run: run.world.lose_node("n0003")),
        ),
    )
    found: list[str] = []
    journaled(stage.root, waiting(), "llm70b")  # of two runs there is a list
    stage.known("llm70b")
    stage.runs.append("llm70b")
    with stage.run(told) as run:
        drills.keep(run.run, DRILL)
        for size, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
            page = stage.page(size)

            def look(view: str, page: Any = page, name: str = name, wide: int = size["width"]) -> None:
                for scheme in ("dark", "light"):
                    page.emulate_media(color_scheme=scheme)
                    if scheme == "dark" or view in {"now", "approve"}:
                        whole = view not in QUESTIONS
                        page.screenshot(path=PICTURES / f"{view}-{name}-{scheme}.png", full_page=whole)
                    found.extend(f"{view} {name} {scheme}: {one}" for one in faults(page, colours=scheme == "light"))
                assert page.evaluate("document.documentElement.scrollWidth") <= wide, view

            page.goto(stage.console.address)
            page.get_by_label("Token").wait_for()
            look("door")
            page.goto(f"{stage.console.address}#token={stage.console.approver}&")
            page.locator(".card").first.wait_for()
            look("runs")
            for view, sign in (
                ("now", "#do-approve"),
                ("nodes", ".wall"),
                ("line", ".curve"),
                ("incidents", ".card"),
                ("saves", ".card"),
                ("ledgers", ".bars"),
            ):
                page.goto(f"{stage.console.address}#run=llm7b&view={view}")
                page.locator(f"main {sign}").first.wait_for()
                look(view)
            page.goto(f"{stage.console.address}#run=llm7b&incident=1")
            page.locator(".bars").wait_for()
            with page.expect_download() as kept:
                page.get_by_role("button", name="Report as HTML").click()
            assert kept.value.suggested_filename == "llm7b-incident-1.html"
            assert "n0001" in Path(kept.value.path()).read_text()
            look("incident")
            page.goto(f"{stage.console.address}#run=llm7b&view=nodes&node=n0001")
            page.locator("#node").wait_for()
            look("node")
            page.goto(f"{stage.console.address}#run=llm7b")
            for question in QUESTIONS:
                page.locator(f"#do-{question}").click()
                look(question)
                page.keyboard.press("Escape")
            page.keyboard.press("?")
            look("keys")
    assert found == []


def test_axe_sees_a_fault(stage: Stage) -> None:
    page = stage.page()
    page.goto(stage.console.address)
    page.get_by_label("Token").wait_for()
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert any(one.startswith("image-alt") for one in faults(page))
