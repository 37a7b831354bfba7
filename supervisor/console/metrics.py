"""What Prometheus scrapes. Gauges where a rollback can take a number back; moments as timestamps, not as ages.

An age is `time() - relight_..._timestamp_seconds`: it goes on growing when this console is gone, which is when it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.facts import FaultClass
from policies.history import Incident
from supervisor.console import documents
from supervisor.console.nodes import counts
from supervisor.console.reading import Reading, Runs, UnreadableError
from supervisor.drill_files import Kind, newest, read_all
from supervisor.telling.incident_facts import PARTS, split, waits

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
Value = Callable[[Reading], float | None]


def _attempt(reading: Reading) -> float | None:
    return reading.history.attempt.number if reading.history.attempt else None


def _last_step(reading: Reading, what: str) -> float | None:
    seen = reading.status.view.attempt if reading.status else None
    value = getattr(seen.last_step, what) if seen and seen.last_step else None
    return None if value is None else float(value)


def _advance(reading: Reading) -> float | None:
    seen = reading.status.view.attempt if reading.status else None
    return seen.last_advance if seen else None


def _saved(reading: Reading) -> float | None:
    best = documents.way_back(reading)
    return (best.saved_at if best.saved_at is not None else best.completed_at) if best else None


def _since(reading: Reading) -> float | None:
    return reading.history.decided_at if waits(reading.history, reading.known) else None


def _tokens(reading: Reading) -> float | None:
    return documents.ledgers(reading).tokens


GAUGES: Final[tuple[tuple[str, str, Value], ...]] = (
    ("relight_controller_up", "1 while a controller of the run is alive.", lambda r: float(r.alive)),
    ("relight_attempt", "Number of the newest attempt.", _attempt),
    ("relight_step", "Step of the newest row of the run; a rollback takes it back.", lambda r: _last_step(r, "step")),
    ("relight_samples", "Samples that the current weights have seen.", lambda r: documents.ledgers(r).samples),
    ("relight_tokens", "Tokens that the current weights have seen, where tokens_per_sample is set.", _tokens),
    ("relight_loss", "Loss of the newest row; absent when it was no finite number.", lambda r: _last_step(r, "loss")),
    ("relight_step_seconds", "Time that the newest step took.", lambda r: _last_step(r, "seconds")),
    ("relight_last_advance_timestamp_seconds", "When any rank last moved on.", _advance),
    ("relight_incident_open", "1 while an incident is open.", lambda r: float(r.history.incident is not None)),
    ("relight_decision_waiting", "1 while a plan waits for a person.", lambda r: float(waits(r.history, r.known))),
    (
        "relight_decision_waiting_since_timestamp_seconds",
        "Since when the plan that waits is there; else absent.",
        _since,
    ),
    ("relight_halted", "1 while the run is halted.", lambda r: float(r.history.halted is not None)),
    ("relight_paused", "1 while the run is paused.", lambda r: float(r.history.paused)),
    (
        "relight_ended",
        "1 once the run has finished or was stopped as planned.",
        lambda r: float(r.history.ended is not None),
    ),
    ("relight_slots", "Nodes that the layout needs.", lambda r: r.settings.shape().slots_needed),
    ("relight_slots_up", "Slots whose node is up; absent while the cluster cannot be read.", lambda r: counts(r)[0]),
    (
        "relight_spares_ready",
        "Spares that could take a slot now; absent while the cluster cannot be read.",
        lambda r: counts(r)[1],
    ),
    ("relight_nodes_quarantined", "Nodes that are barred.", lambda r: len(r.history.barred(r.now))),
    (
        "relight_checkpoint_step",
        "Step of the newest completed save.",
        lambda r: best.step if (best := documents.way_back(r)) else None,
    ),
    ("relight_checkpoint_saved_timestamp_seconds", "When the newest completed save was taken.", _saved),
    (
        "relight_effective_time_ratio",
        "ETTR: share of the time since the start that was neither down nor redone.",
        documents.share,
    ),
    (
        "relight_status_written_timestamp_seconds",
        "When the controller last wrote status.json.",
        lambda r: r.status.at if r.status else None,
    ),
)
"""Name, help, value; None is left out: absent is unknown, never 0."""


class RunCollector(Collector):
    """The metrics of all runs, read anew at each scrape."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        """All families, each with one sample a run."""
        readable = GaugeMetricFamily("relight_run_readable", "1 while the run's directory can be read.", labels=["run"])
        readings: dict[str, Reading] = {}
        for name, follower in self._runs.all().items():
            try:
                readings[name] = follower.read()
            except UnreadableError:
                readable.add_metric([name], 0.0)
            else:
                readable.add_metric([name], 1.0)
        yield readable
        for metric, help_, value in GAUGES:
            family = GaugeMetricFamily(metric, help_, labels=["run"])
            for name, reading in readings.items():
                found = value(reading)
                if found is not None:
                    family.add_metric([name], float(found))
            yield family
        yield from _counters(readings)


def _counters(readings: dict[str, Reading]) -> Iterator[Metric]:
    attempts = CounterMetricFamily("relight_attempts", "Attempts launched.", labels=["run"])
    updates = CounterMetricFamily(
        "relight_updates_computed", "Updates computed, rolled back ones among them.", labels=["run"]
    )
    rolled = CounterMetricFamily("relight_updates_rolled_back", "Updates that a rollback has undone.", labels=["run"])
    skipped = CounterMetricFamily("relight_updates_skipped", "Updates that were skipped.", labels=["run"])
    again = CounterMetricFamily("relight_samples_read_again", "Samples read again after a rollback.", labels=["run"])
    stopped = CounterMetricFamily("relight_incidents", "Incidents by class of the fault.", labels=["run", "class"])
    time = CounterMetricFamily(
        "relight_incident_time_seconds", "Where the time of incidents went.", labels=["run", "part"]
    )
    drilled = GaugeMetricFamily(
        "relight_drill_timestamp_seconds",
        "When the last drill of this kind went well; absent where none has.",
        labels=["run", "kind"],
    )
    took = GaugeMetricFamily(
        "relight_drill_seconds", "How long the last good drill of this kind took.", labels=["run", "kind"]
    )
    for name, reading in readings.items():
        drills = read_all(reading.run)
        for kind in get_args(Kind):
            good = newest(drills, kind)
            if good is not None:
                drilled.add_metric([name, kind], good.ended_at)
                took.add_metric([name, kind], good.took_s)
        books = documents.ledgers(reading)
        attempts.add_metric([name], len(reading.history.attempts))
        updates.add_metric([name], books.computed)
        rolled.add_metric([name], books.rolled_back)
        skipped.add_metric([name], books.skipped)
        again.add_metric([name], books.samples_read_again)
        for fault in FaultClass:
            stopped.add_metric([name, fault.value], sum(1 for one in reading.history.incidents if one.fault is fault))
        for part, seconds in _split(reading.history.incidents).items():
            time.add_metric([name, part], seconds)
    yield from (attempts, updates, rolled, skipped, again, stopped, time, drilled, took)


def _split(incidents: tuple[Incident, ...]) -> dict[str, float]:
    total = {text.replace(" ", "_"): 0.0 for _, text in PARTS}
    for one in incidents:
        for part, seconds in split(one.times):
            total[part.replace(" ", "_")] += seconds
    return total


def exposition(runs: Runs) -> bytes:
    """The text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(runs))
    return generate_latest(registry)
