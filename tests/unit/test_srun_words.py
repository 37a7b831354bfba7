"""Srun's words are read when there are more of them, and not once it is told to stop."""

from slurm.cluster import LaunchSpec
from slurm.srun_words import NOTHING, SrunWords


def order(path):
    return LaunchSpec("demo.a0001.e1", 1, ("n001", "n002"), ("true",), {}, "/", str(path))


def test_they_are_read_as_they_come(tmp_path):
    path, words = tmp_path / "srun.err", SrunWords()
    assert words.of(order(path)) == NOTHING
    path.write_text("srun: error: n002: task 1: Killed\n")
    assert [one.task for one in words.of(order(path)).ends] == [1]
    with path.open("a") as file:
        file.write("srun: error: Node failure on n001\n")
    told = words.of(order(path))
    assert (len(told.ends), told.complaints) == (1, ("srun: error: Node failure on n001",))


def test_what_comes_after_a_stop_is_of_the_stop(tmp_path):
    path, words = tmp_path / "srun.err", SrunWords()
    path.write_text("srun: error: n002: task 1: Killed\n")
    before = words.of(order(path))
    words.close("demo.a0001.e1")
    with path.open("a") as file:
        file.write("srun: error: n001: task 0: Killed\n")
    assert words.of(order(path)) == before
