"""Whatever happens: only nodes that were named are barred, never a kept one, never many at once, and twice the same."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import FaultClass
from policies.history import Attempt, Bar, Diagnosis, History, Incident, Times, Trouble
from policies.quarantine import BREAKER_FLOOR, ToBar, to_bar
from policies.reasons import Reason
from policies.rules import Rules

REPEATABLE = settings(derandomize=True, max_examples=300, deadline=None)
SLOTS = tuple(f"n{i}" for i in range(6))
NOW = 10_000.0
some_nodes = st.lists(st.sampled_from(SLOTS), max_size=4).map(tuple)


@st.composite
def troubles(draw: st.DrawFn, attempt: int) -> Trouble:
    fault = draw(st.sampled_from(FaultClass))
    return Trouble(
        fault, Reason(fault.value), draw(st.floats(0, NOW)), attempt, died=False, text="", nodes=draw(some_nodes)
    )


@st.composite
def diagnoses(draw: st.DrawFn) -> Diagnosis | None:
    if draw(st.booleans()):
        return None
    category = draw(st.sampled_from(["hardware.gpu", "hang.unknown", "software.user"]))
    return Diagnosis(suspects=draw(some_nodes), category=category, fault=draw(st.sampled_from([None, *FaultClass])))


@REPEATABLE
@given(st.data())
def test_bars_are_named_bounded_and_stable(data: st.DataObject) -> None:
    past = [data.draw(troubles(n)) for n in (1, 2)]
    trouble, diagnosis, keep = data.draw(troubles(3)), data.draw(diagnoses()), data.draw(some_nodes)
    bars = tuple(Bar(node, data.draw(st.floats(0, NOW)), 1, Reason.NODE_LOST) for node in data.draw(some_nodes))
    history = History(
        attempts=tuple(Attempt(n, SLOTS, None, 0, 0.0, None) for n in (1, 2, 3)),
        incidents=tuple(Incident(t.attempt, t.attempt, t, Times(), 0, 0) for t in (*past, trouble)),
        bars=bars,
    )
    verdict = to_bar(diagnosis, trouble, Rules(), history, NOW, keep)
    named = set(trouble.nodes).union(diagnosis.suspects if diagnosis else ())
    assert set(verdict.nodes) <= named - set(keep)
    if isinstance(verdict, ToBar) and verdict.nodes:
        within_the_hour = {b.node for b in bars if NOW - b.at < 3600}
        assert len(within_the_hour.union(verdict.nodes)) <= BREAKER_FLOOR
        journaled = tuple(Bar(node, NOW, 3, trouble.reason) for node in verdict.nodes)
        assert to_bar(diagnosis, trouble, Rules(), replace(history, bars=bars + journaled), NOW, keep) == verdict
