"""Whatever lies where the status should be, the guard looks on."""

import pytest

from supervisor.guard.looking import Eye
from supervisor.rundir import RunDir


@pytest.mark.parametrize("text", ["", "[1", "[]", "{}", '"x"', '{"at": 1}', "[" * 200_000, '{"a":' * 200_000, "\x00"])
def test_a_status_that_is_none_is_no_fault(tmp_path, text):
    run = RunDir(str(tmp_path / "run"))
    run.create()
    (tmp_path / "run" / "status.json").write_text(text)
    look = Eye(run.root).look()
    assert (look.there, look.status, look.waits) == (True, "", False)
