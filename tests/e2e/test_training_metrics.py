"""The shared run with real verl and vLLM in Prometheus: the queries of dashboards and rules, and the values of metrics.

    RLJOB_WATCHED=build/e2e pytest -m e2e tests/e2e/test_training_metrics.py

repeats the queries on the data of the last run, without a cluster, after a change of a dashboard or a rule.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.shared import ATTEMPTS, NAME, Seen, variables
from tests.monitoring.boards import faults, look
from tests.monitoring.figures import Look, looks, wrong_idle_ratios, wrong_rates, wrong_sums
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.questions import (
    Unanswered,
    ask_all,
    board_files,
    board_questions,
    idle_exceptions,
    rule_questions,
)
from tests.monitoring.rules import rule_groups

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(4200)]

Watched = tuple[Prometheus, Seen]
EXCEPTIONS = (
    Unanswered(r"npu_chip_|machine_\w*npu", "npu-exporter needs NPUs"),
    Unanswered(r"vllm:spec_decode", "the quickstart uses no speculative decoding"),
    Unanswered(
        r"rljob_(staleness_responses|oldest_prompt_steps|prompts|prompts_in_flight|prompts_dropped)\{|eff_sample_size",
        "no prompt of a synchronous run is in flight between steps",
    ),
    Unanswered(
        r'rljob_(role_cards|rollout_replicas|trainer_wait_ratio)\{|rollout_(tokens_per_card|idle)|stage="trainer"',
        "trainer and rollout of a synchronous run have the same nodes",
    ),
    Unanswered(r"rljob_(tool_calls|judge_request\w+)\{", "the quickstart has no tools and no judge"),
    Unanswered(r"rljob_validation", "the quickstart runs no validation"),
    Unanswered(r"rljob_kl_loss", "the quickstart has no KL in its loss"),
    Unanswered(r"rljob_record_seconds\{", "the quickstart records every step"),
    Unanswered(r"rljob_expert_load", "the quickstart's model has no experts"),
    Unanswered(r"rljob_core_binding", "the accelerator class cpu binds no CPUs"),
    Unanswered(r"job_queue_wait_seconds", "there is no queue on the local cluster"),
    Unanswered(
        r"rljob_preflight_nodes\{.*failed", "by chance: depends on the warnings of checks on this machine", chance=True
    ),
    Unanswered(r"state_duration_seconds", "by chance: only for states that the operator observed twice", chance=True),
    Unanswered(
        r'queue_duration_seconds.*lane="(new|to_begin)"', "by chance: only for jobs created during the run", chance=True
    ),
    Unanswered(r"reconcile_errors_total", "by chance: only after failed reconciliations", chance=True),
    Unanswered(r"api_requests_total\{.*code!~", "by chance: only after failed requests", chance=True),
    Unanswered(r"resync_drift_total", "by chance: only after lost watch events", chance=True),
)
RATE_TOLERANCE = 0.01
IDLE_TOLERANCE = 0.01


@pytest.fixture(scope="module")
def seen_steps(watched: Watched) -> list[Look]:
    prometheus, seen = watched
    matchers = f'rljob="{NAME}",rljob_namespace="{seen.namespace}"'
    return looks(prometheus, matchers, seen.attempts, seen.time)


@pytest.mark.parametrize("job", ["rljob-operator", "rljob-jobs", "rljob-ray"])
def test_operator_exporter_and_ray_were_scraped(watched: Watched, job: str) -> None:
    prometheus, seen = watched
    answers = prometheus.over(f'sum(up{{job="{job}"}})', seen.begin, seen.end, seen.time.step_seconds)
    assert answers, f"Prometheus has no target of {job}"
    up = list(answers[0].samples.values())
    print(f"{job}: {sum(up):.0f} successful scrapes of targets at {len(up)} times")
    assert max(up) >= 1


def test_every_query_of_the_dashboards_has_a_result(watched: Watched) -> None:
    prometheus, seen = watched
    wrong = ask_all(prometheus, board_questions(), EXCEPTIONS, variables(seen), seen.time)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", board_files(), ids=lambda path: path.stem)
def test_panels_name_their_lines_and_are_true_to_their_units(watched: Watched, path: Path) -> None:
    prometheus, seen = watched
    wrong = faults(look(prometheus, path, variables(seen), seen.time))
    assert not wrong, "\n".join(wrong)


def test_every_series_of_the_rules_exists(watched: Watched) -> None:
    prometheus, seen = watched
    wrong = ask_all(prometheus, rule_questions(rule_groups()), EXCEPTIONS, variables(seen), seen.time)
    assert not wrong, "\n".join(wrong)


def test_every_exception_matches_a_query() -> None:
    assert idle_exceptions([*board_questions(), *rule_questions(rule_groups())], EXCEPTIONS) == []


def test_the_steps_were_scraped(watched: Watched, seen_steps: list[Look]) -> None:
    trained = sum(len(lines) for lines in watched[1].attempts)
    steps = {(look.values["attempt"], look.line["step"]) for look in seen_steps if look.line}
    print(f"{len(steps)} of {trained} steps were scraped, in {len(seen_steps)} scrapes")
    assert len(steps) >= trained * 3 / 4
    assert {number for number, _ in steps} == set(ATTEMPTS)


def test_tokens_per_second_are_tokens_over_seconds_over_cards(watched: Watched, seen_steps: list[Look]) -> None:
    wrong = wrong_rates(seen_steps, RATE_TOLERANCE) + wrong_sums(seen_steps, watched[1].attempts, RATE_TOLERANCE)
    assert not wrong, "\n".join(wrong)


def test_idle_ratios_are_those_of_the_ranks_finish_times(seen_steps: list[Look]) -> None:
    wrong = wrong_idle_ratios(seen_steps, IDLE_TOLERANCE)
    assert not wrong, "\n".join(wrong)


def test_no_critical_alert_fired(watched: Watched) -> None:
    prometheus, seen = watched
    found = prometheus.over('ALERTS{alertstate="firing"}', seen.begin, seen.end, seen.time.step_seconds)
    print("fired:", sorted({f"{one.labels['alertname']} ({one.labels['severity']})" for one in found}))
    assert [one.labels for one in found if one.labels["severity"] == "critical"] == []
