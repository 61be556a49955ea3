"""Metrics of used devices: they rise with the runs, agree with the status, and never fall."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json, at, job, status_begun, status_training

from rljob.telemetry import ledger
from rljob.telemetry.ledger import Ledger
from rljob.telemetry.metrics import PLACES_MAX, QUEUES_MAX, Metrics

PREFIX = "rljob_operator"


def running(version: str = "1", **change: Any) -> Json:  # noqa: ANN401 - JSON
    """Return a job of two devices that was submitted at second 0 and is training."""
    status = status_training() | change
    return job(status=status, resourceVersion=version)


def with_saved(step: int, version: str, *, at_step: int = 3, step_seconds: str = "10") -> Json:
    progress = status_training()["progress"] | {"step": at_step, "medianStepSeconds": step_seconds}
    saved = {"step": step, "path": "/data", "savedTime": "2026-01-01T12:00:00Z"}
    return running(version, progress=progress, checkpoint=saved)


def ended(version: str, **usage_of: int) -> Json:
    attempt = status_training()["attempts"][0] | {"endTime": "2026-01-01T12:10:00Z", "outcome": "Succeeded"}
    return running(version, attempts=[attempt], usage=usage_of)


class Page:
    """A ledger and what Prometheus would read."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.ledger = Ledger(self.metrics)

    def see(self, seconds: float, *jobs: Json, queue: str | None = "a") -> None:
        self.ledger.refresh(((found, queue) for found in jobs), at(seconds))

    def read(self, name: str, namespace: str = "team", queue: str = "a") -> float | None:
        return self.metrics.registry.get_sample_value(
            f"{PREFIX}_{name}", {"rljob_namespace": namespace, "queue": queue}
        )

    def queues(self, name: str, namespace: str) -> dict[str, float]:
        """Return the samples of all queues of a namespace."""
        return {
            sample.labels["queue"]: sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"{PREFIX}_{name}" and sample.labels["rljob_namespace"] == namespace
        }


@pytest.fixture
def page() -> Page:
    return Page()


def test_a_run_counts_while_it_goes_on(page: Page) -> None:
    page.see(0, running())
    page.see(60, running())
    assert page.read("device_seconds_total") == 120
    assert page.read("card_seconds_total") == 120
    assert page.read("devices_held") == 2
    assert page.read("goodput_ratio") == 0


def test_steps_count_as_productive_when_they_are_saved(page: Page) -> None:
    page.see(0, running())
    page.see(60, with_saved(2, "2"))
    assert page.read("productive_device_seconds_total") == 2 * 2 * 10
    assert page.read("goodput_ratio") == pytest.approx(40 / 120)


def test_at_the_end_the_counters_are_what_the_status_says(page: Page) -> None:
    page.see(0, running())
    page.see(60, with_saved(2, "2"))
    page.see(700, ended("3", deviceSeconds=1200, productiveDeviceSeconds=900))
    assert page.read("device_seconds_total") == 1200
    assert page.read("productive_device_seconds_total") == 900
    assert page.read("devices_held") == 0
    assert page.read("goodput_ratio") == pytest.approx(0.75)


def test_nothing_is_taken_back_when_an_estimate_was_too_high(page: Page) -> None:
    page.see(0, running())
    page.see(100, with_saved(3, "2"))
    page.see(100, with_saved(3, "3", step_seconds="4"))
    assert page.read("productive_device_seconds_total") == 60
    page.see(200, ended("4", deviceSeconds=150, productiveDeviceSeconds=90))
    assert page.read("productive_device_seconds_total") == 90
    assert page.read("device_seconds_total") == 200


def test_what_an_earlier_process_counted_is_not_counted_again(page: Page) -> None:
    page.see(600, running(usage={"deviceSeconds": 5000, "productiveDeviceSeconds": 100}))
    assert page.read("device_seconds_total") == 0
    page.see(610, running(usage={"deviceSeconds": 5000, "productiveDeviceSeconds": 100}))
    assert page.read("device_seconds_total") == 20
    assert page.read("goodput_ratio") == pytest.approx(100 / 6220)


def test_a_job_that_has_not_begun_holds_nothing(page: Page) -> None:
    page.see(0, job(), job(status=status_begun(), uid="other"))
    assert page.read("devices_held") == 0
    assert page.read("goodput_ratio") is None


def test_a_job_that_is_gone_leaves_what_it_used(page: Page) -> None:
    page.see(0, running())
    page.see(60, running())
    page.see(90)
    assert page.read("device_seconds_total") == 120
    assert page.read("devices_held") is None


def test_the_queue_of_a_job_stays_known_when_its_cluster_is_gone(page: Page) -> None:
    page.see(0, running(), queue="a")
    page.see(60, running(), queue=None)
    assert page.read("device_seconds_total", queue="a") == 120


def test_a_queue_that_is_known_late_is_counted_from_then_on(page: Page) -> None:
    page.see(0, running(), queue=None)
    page.see(60, running(), queue=None)
    page.see(90, running(), queue="a")
    assert (page.read("device_seconds_total", queue=""), page.read("device_seconds_total")) == (120, 60)


def test_a_status_is_read_again_only_when_it_changed(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    page.see(0, running())
    monkeypatch.setattr(ledger, "read_status", None)
    page.see(60, running())
    assert page.read("device_seconds_total") == 120


def test_very_many_namespaces_share_a_series(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PLACES_MAX", 1)
    jobs = [running() | {"metadata": running()["metadata"] | {"namespace": f"n{n}", "uid": f"u{n}"}} for n in range(3)]
    page.see(0, *jobs)
    page.see(10, *jobs)
    assert page.read("devices_held", "n0") == 2
    assert page.read("devices_held", "other", "other") == 4


def in_queues(namespace: str, *queues: str) -> list[tuple[Json, str]]:
    """Return a running job in each of the queues."""
    metadata = running()["metadata"]
    return [
        (running() | {"metadata": metadata | {"namespace": namespace, "uid": f"{namespace}-{number}"}}, queue)
        for number, queue in enumerate(queues)
    ]


def test_a_tenant_with_many_queues_does_not_use_up_the_series_of_others(page: Page) -> None:
    greedy = in_queues("team-a", *(f"q{number}" for number in range(PLACES_MAX + 1)))
    late = in_queues("team-b", "cards")
    page.ledger.refresh([*greedy, *late], at(0))
    page.ledger.refresh([*greedy, *late], at(10))
    assert page.read("devices_held", "team-b", "cards") == 2
    assert page.read("device_seconds_total", "team-b", "cards") == 20
    held = page.queues("devices_held", "team-a")
    own = [held.get(f"q{number}") for number in range(PLACES_MAX + 1)]
    assert own == [2] * QUEUES_MAX + [None] * (PLACES_MAX + 1 - QUEUES_MAX)
    assert page.read("devices_held", "team-a", "other") == 2 * (PLACES_MAX + 1 - QUEUES_MAX)
    assert page.read("devices_held", "other", "other") is None


def test_jobs_without_a_queue_have_their_own_series_beside_those_of_queues(page: Page) -> None:
    jobs = in_queues("team-a", *(f"q{number}" for number in range(QUEUES_MAX)), "", "one more")
    page.ledger.refresh(jobs, at(0))
    assert (page.read("devices_held", "team-a", ""), page.read("devices_held", "team-a", "other")) == (2, 2)


@pytest.mark.parametrize("queue", ["a b", 'x"} 1\nup{y="', "q" * 64, "-q", "\x1b[2J", "\u202eq", "q/r", "é"])
def test_only_a_label_value_becomes_a_label(queue: str, page: Page) -> None:
    page.ledger.refresh(in_queues("team-a", queue), at(0))
    assert page.read("devices_held", "team-a", "other") == 2
    assert page.read("devices_held", "team-a", queue) is None


def test_cards_of_two_devices_are_counted_as_cards(page: Page) -> None:
    resolved = status_training()["resolved"] | {"devices": 4, "cards": "2"}
    page.see(0, running(resolved=resolved))
    page.see(10, running(resolved=resolved))
    assert (page.read("device_seconds_total"), page.read("card_seconds_total")) == (40, 20)
