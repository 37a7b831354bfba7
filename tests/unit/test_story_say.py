"""Times, spans, numbers and foreign text."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.telling import say

settings.register_profile("say", derandomize=True, deadline=None)
settings.load_profile("say")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (11.2, "11.2 s"),
        (59.96, "1 min"),
        (728, "12 min 8 s"),
        (1188, "19 min 48 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400, "1 day"),
        (273_600, "3 days 4 h"),
        (-5, "-5 s"),
        (float("nan"), "unknown"),
    ],
)
def test_spans(seconds, text):
    assert say.span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (728, "12:08"), (3723, "1:02:03"), (-61, "-1:01"), (float("inf"), "unknown")]
)
def test_columns_of_spans(seconds, text):
    assert say.minutes(seconds) == text


def test_numbers_and_lists():
    assert say.number(3_380_838_400) == "3,380,838,400"
    assert [say.amount(n) for n in (999_999, 5_571_200, 3_380_838_400, 2 * 10**12)] == [
        "999,999",
        "5.6 M",
        "3.4 G",
        "2.0 T",
    ]
    assert [say.count(1, "loss", "losses"), say.count(2, "loss", "losses"), say.count(1, "iteration")] == [
        "1 loss",
        "2 losses",
        "1 iteration",
    ]
    assert say.names(["a", "b"]) == "a, b"
    assert say.names([str(i) for i in range(12)]) == "0, 1, 2, 3 and 8 more"
    assert say.names([]) == "none"


@pytest.mark.parametrize(
    ("foreign", "text"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("a\r\nb\tc\x00d", "a b c d"),
        ("left\u202egnp.exe", "left gnp.exe"),
        ("\x1b", ""),
        ("zero\u200bwidth \ud800", "zero width"),
    ],
)
def test_foreign_text_is_one_harmless_line(foreign, text):
    assert say.clean(foreign) == text


def test_a_long_line_is_cut_and_counted():
    text = say.clean("A" * 10_240)
    assert text == "A" * say.LINE_MAX + "... (10,240 characters)"


@given(st.text(alphabet=st.characters(), max_size=600) | st.from_regex(r"(\x1b[\[\]PX^_(#]?[0-9;]*[A-Za-z]?.){0,40}"))
def test_no_control_survives_and_cleaning_twice_changes_nothing(foreign):
    text = say.clean(foreign)
    assert not [c for c in text if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} or c in "\u202e\u2066\u200f"]
    assert len(text) < say.LINE_MAX + 40
    text.encode("utf-8")
    if len(foreign) <= say.LINE_MAX:
        assert say.clean(text) == text


@given(st.floats(min_value=0, max_value=1e9))
def test_a_span_is_never_empty_and_never_negative(seconds):
    assert say.span(seconds)[0].isdigit()


def test_a_sentence_ends_once():
    assert [say.sentence(t) for t in ("so", "so.", "so?", "")] == ["so.", "so.", "so?", ""]
    assert [say.sentence(t) for t in ("a (b)", "(It is.)", ")")] == ["a (b).", "(It is.)", ")."]
