"""Rounds of checks: what is news, what it is dated to, and that no check holds up or ends anything."""

from __future__ import annotations

import asyncio
import json

import pytest

from supervisor.agent.health import checks
from supervisor.agent.health.checks import checks_of
from supervisor.agent.health.nvml import Gpu
from supervisor.agent.health.plan import FILE, Plan, read_plan
from supervisor.agent.health.results import healthy, unhealthy, unknown
from supervisor.agent.health.rounds import MESSAGE, MOST, Rounds
from supervisor.prepare import Wishes, prepare
from supervisor.settings import HealthSettings, Settings, freeze

LONGEST_LINE = 64 << 10


class Scene:
    """Rounds with a clock and an attempt that are set, and what was told."""

    def __init__(self):
        self.now, self.attempt, self.told = 100.0, 1, []
        self.ended = []
        self.rounds = Rounds(
            self.told.append, self.ended.append, lambda: self.attempt, lambda: self.now, lambda: self.now
        )

    def say(self, at, verdict, name="disk /data"):
        self.now = at
        self.told.clear()
        self.rounds.note({name: verdict})
        return [one for message in self.told for one in message]


@pytest.fixture
def scene():
    return Scene()


def test_only_a_change_is_told(scene):
    assert [one["state"] for one in scene.say(100, healthy("5 GB are free"))] == ["healthy"]
    assert scene.say(160, healthy("4 GB are free")) == []
    (told,) = scene.say(220, unhealthy("disk-full", "0.1 GB are free"))
    assert (told["state"], told["kind"], told["since"], told["before"]) == ("unhealthy", "disk-full", 220, 160)
    assert scene.say(280, unhealthy("disk-full", "0.05 GB are free")) == []
    (told,) = scene.say(340, healthy("5 GB are free"))
    assert told["state"] == "healthy"


def test_a_new_controller_is_told_everything_as_it_is_now(scene):
    scene.say(100, healthy("well"))
    scene.say(160, unhealthy("disk-full", "full"))
    scene.attempt = 2
    scene.say(220, unhealthy("disk-full", "fuller"))
    scene.told.clear()
    scene.rounds.tell_all()
    ((told,),) = scene.told
    assert (told["text"], told["when"], told["since"], told["before"], told["attempt"]) == ("fuller", 220, 160, 100, 1)


def test_a_look_that_fails_in_between_makes_nothing_new(scene):
    scene.say(100, unhealthy("gpu-ecc", "1 error", mark="1"))
    scene.attempt = 2
    assert [one["state"] for one in scene.say(160, unknown("no answer"))] == ["unknown"]
    (told,) = scene.say(220, unhealthy("gpu-ecc", "1 error", mark="1"))
    assert (told["since"], told["before"], told["attempt"]) == (100, None, 1)
    (told,) = scene.say(280, unhealthy("gpu-ecc", "2 errors", mark="2"))
    assert (told["since"], told["before"], told["attempt"]) == (280, 220, 2)


def test_unknown_is_no_look_that_said_otherwise(scene):
    scene.say(100, unknown("no answer"))
    (told,) = scene.say(160, unhealthy("gpu-ecc", "1 error"))
    assert told["before"] is None


def test_messages_are_bounded(scene):
    nasty = "\x1b]0;\u4e00\U0001f525\n" * 1000
    scene.rounds.note({f"{n} {nasty}": unhealthy("site-check", nasty) for n in range(3 * MOST)})
    assert sum(len(message) for message in scene.told) == MOST
    for message in scene.told:
        assert len(message) <= MESSAGE
        line = {"type": "health", "node": "n" * 250, "results": message}
        assert len(json.dumps(line).encode()) < LONGEST_LINE
        assert all(one["text"].isprintable() and one["name"].isprintable() for one in message)


class Fake:
    def __init__(self, name, look):
        self.names, self._look = (name,), look

    async def look(self):
        return {self.names[0]: await self._look()}


def test_a_check_that_breaks_is_unknown_and_one_that_hangs_holds_up_no_other(scene):
    hanging = asyncio.Event()

    async def breaks():
        raise ZeroDivisionError("by nought")

    async def well():
        return healthy("well")

    async def hangs():
        await hanging.wait()
        return unknown("late")

    async def run():
        told = asyncio.Event()
        rounds = Rounds(lambda results: (scene.told.extend(results), told.set()), scene.ended.append, lambda: 1)
        some = [Fake("hangs", hangs), Fake("breaks", breaks), Fake("well", well)]
        task = asyncio.create_task(rounds.once(some))
        while len(scene.told) < 2:
            await told.wait()
            told.clear()
        assert {one["name"]: one["state"] for one in scene.told} == {"breaks": "unknown", "well": "healthy"}
        assert "ZeroDivisionError: by nought" in {one["text"] for one in scene.told}
        hanging.set()
        await task

    asyncio.run(run())
    assert scene.told[-1]["name"] == "hangs"


def test_rounds_go_on(scene):
    async def run():
        third, looks = asyncio.Event(), []

        async def look():
            looks.append(1)
            if len(looks) == 3:
                third.set()
            return healthy("well")

        task = asyncio.create_task(scene.rounds.run([Fake("x", look)], 0.001, 0.0))
        await third.wait()
        task.cancel()

    asyncio.run(run())
    assert [one["checks"] for one in scene.ended] == [1, 1]


def test_without_checks_that_is_told_once_and_to_who_asks():
    ended: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    rounds = Rounds(lambda _: None, ended.put_nowait, lambda: 1)

    async def looked():
        raise AssertionError("nothing is to be looked at")

    async def run():
        task = asyncio.create_task(rounds.run([Fake("x", looked)], 0.0, 0.0))
        first = await ended.get()
        rounds.ask(3)
        second = await ended.get()
        task.cancel()
        assert [(one["checks"], one["for"]) for one in (first, second)] == [(0, 0), (0, 3)]

    asyncio.run(run())


class Slow:
    """A check that ends when it is let go, and says when it begins."""

    names = ("x",)

    def __init__(self):
        self.begun, self.go = asyncio.Queue(), asyncio.Queue()

    async def look(self):
        self.begun.put_nowait(None)
        return {"x": await self.go.get()}


def test_a_question_is_answered_by_a_round_that_began_after_it_and_the_results_come_first():
    told: asyncio.Queue[object] = asyncio.Queue()
    rounds = Rounds(lambda results: told.put_nowait(results[0]["state"]), told.put_nowait, lambda: 1)

    async def run():
        check = Slow()
        task = asyncio.create_task(rounds.run([check], 3600.0, 0.0))
        await check.begun.get()
        rounds.ask(7)  # the calm round is under way: what it says may be from before
        check.go.put_nowait(healthy("well"))
        assert [await told.get(), (await told.get())["for"]] == ["healthy", 0]
        await check.begun.get()  # and not after an hour
        rounds.ask(7)  # asked again: one question
        check.go.put_nowait(unhealthy("gpu-lost", "gone"))
        assert [await told.get(), (await told.get())["for"]] == ["unhealthy", 7]
        rounds.ask(7)  # the answer was lost: it is said again, without another look
        assert (await told.get())["for"] == 7
        assert check.begun.empty()
        for nonsense in (None, True, 0, -1, "8", 9.0):
            rounds.ask(nonsense)
        rounds.tell_all()
        assert [await told.get(), (await told.get())["for"]] == ["unhealthy", 7]
        assert check.begun.empty()
        task.cancel()

    asyncio.run(run())


def test_as_many_gpus_as_were_ever_seen_must_be_there():
    seen = [Gpu(n, f"0000:{n}", uncorrected=0) for n in range(8)]

    class Answers:
        async def ask(self):
            return None

    gpus = checks.Gpus(Answers(), lambda _ran: tuple(seen))
    assert asyncio.run(gpus.look())["gpus"].state == "healthy"
    seen.pop()
    verdict = asyncio.run(gpus.look())["gpus"]
    assert (verdict.kind, verdict.text) == ("gpu-lost", "7 of 8 GPUs are left")


def test_every_check_has_its_own_name(tmp_path):
    plan = Plan(paths=("/a", "/b", "/a"), commands=(("sh", "-c", "exit 0"), ("/bin/sh", "-c", "exit 1")))
    names = [name for check in checks_of(plan, str(tmp_path)) for name in check.names]
    assert len(names) == len(set(names))
    assert {"disk /a", "disk /b", "memory", "clock", "gpus", "command sh", "command sh (2)"} <= set(names)


def test_another_python_may_have_nvrx(tmp_path):
    names = {n for check in checks_of(Plan(nvrx_python="/none/python"), str(tmp_path)) for n in check.names}
    assert {"nvrx-gpu", "nvrx-nvlink", "nvrx-link", "nvrx-link-count", "nvrx-storage"} <= names


# --- the plan ------------------------------------------------------------------------------------------------------


def test_the_settings_reach_the_agents(tmp_path):
    (tmp_path / "relight.toml").write_text(
        'command = ["true"]\n[health]\nevery_s = 30\npaths = ["/scratch"]\ncommands = [["nhc", "-q"]]\n'
        f"nvrx_python = '{tmp_path}/../python'\n"
        "[checkpoints]\ndir = '/store'\n"
    )
    wishes = Wishes(None, str(tmp_path / "relight.toml"), None, str(tmp_path / "run"), ())
    prepare(wishes)
    run, python = str(tmp_path / "run"), str(tmp_path.parent / "python")
    assert read_plan(run) == Plan(30.0, 20.0, (run, "/store", "/dev/shm", "/scratch"), (("nhc", "-q"),), "none", python)


def test_a_later_start_may_change_what_is_checked(tmp_path):
    freeze(str(tmp_path), Settings())
    freeze(str(tmp_path), Settings(health=HealthSettings(every_s=0, kernel_log="/var/log/kern.log")))
    plan = read_plan(str(tmp_path))
    assert (plan.every_s, plan.kernel_log) == (0.0, "/var/log/kern.log")


GOOD = {"every_s": 60, "deadline_s": 20, "paths": [], "commands": [], "kernel_log": "", "nvrx_python": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{" * 5000,
        json.dumps({**GOOD, "every_s": -1}),
        json.dumps({**GOOD, "every_s": True}),
        json.dumps({**GOOD, "deadline_s": 0}),
        json.dumps({**GOOD, "deadline_s": float("nan")}),
        json.dumps({**GOOD, "paths": "/data"}),
        json.dumps({**GOOD, "paths": ["a\0b"]}),
        json.dumps({**GOOD, "commands": [[]]}),
        json.dumps({**GOOD, "commands": ["nhc"]}),
        json.dumps({**GOOD, "commands": [["true"]] * 17}),
        json.dumps({**GOOD, "kernel_log": None}),
    ],
)
def test_a_plan_that_makes_no_sense_is_none(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert isinstance(read_plan(str(tmp_path)), str)
    (tmp_path / FILE).write_text(json.dumps(GOOD))
    assert isinstance(read_plan(str(tmp_path)), Plan)


def test_a_plan_that_is_not_there(tmp_path):
    assert read_plan(str(tmp_path)) == "health.json: No such file or directory"
