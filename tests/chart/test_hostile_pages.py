"""Pods of a tenant that serve hostile pages to a real Prometheus with the chart's scrape configuration.

The author of a job controls what its pods serve, and may label other pods as those of a job, of the operator or of
npu-exporter. Nothing of that may appear under another tenant's name or under a name that is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import yaml

from rljob.telemetry.metrics import Metrics
from rljob_runtime.exporter.scrape import bound
from tests.chart.helm import pick, render
from tests.kube import wait_for
from tests.monitoring import served
from tests.monitoring.discovery import discovering, scrape_jobs
from tests.monitoring.prometheus import SCRAPE_CONFIG, Prometheus, Series, configuration, running
from tests.monitoring.rules import write_rules

INTERVAL_SECONDS = 1
OTHER = 'rljob="victim",rljob_namespace="team-b",namespace="team-b",pod="victim",job="rljob-operator",instance="x"'
FORGED = f"""rljob_cards{{{OTHER}}} 512
rljob_step{{exported_rljob_namespace="team-b",exported_job="rljob-operator"}} 7
rljob_reward_mean{{{OTHER}}} NaN
rljob_operator_card_seconds_total{{rljob_namespace="team-b",queue="cards",job="rljob-operator"}} 1e9
rljob_operator_productive_card_seconds_total{{rljob_namespace="team-b",queue="cards"}} 1e9
rljob_operator_leader{{job="rljob-operator"}} 1
rljob:pod:info{{namespace="team-b",pod_name="victim",rljob="victim",rljob_namespace="team-b"}} 1
kube_rljob_info{{rljob_namespace="team-b",rljob="victim",queue="cards"}} 1
up{{{OTHER}}} 0
ALERTS{{alertname="RLJobChipUnhealthy",alertstate="firing"}} 1
rljob_phases{{{OTHER}}} 1
node_memory_MemFree_bytes 1
"""
OLD = "rljob_cards 9\nrljob_step 3 1000\n"
"""A time stamp of 1970, which Prometheus rejects as out of bounds if it takes time from the page."""
TWO_NAMES = 'rljob_cards 4\nrljob_step{__name__="rljob_operator_card_seconds_total",rljob_namespace="team-b"} 1e9\n'
MANY = "".join(f'rljob_verl_metric{{key="{number}"}} 1\n' for number in range(5001))
MILLION = "".join(f'rljob_verl_metric{{key="{number}"}} 1\n' for number in range(1_000_000))
UNLISTED = "rljob_cards 3\n" + "".join(f"rljob_x{number} 1\n" for number in range(20_000))
LONG_VALUE = f'rljob_cards 1\nrljob_verl_metric{{key="{"k" * 600}"}} 1\n'
LONG_NAME = f'rljob_cards 1\nrljob_verl_metric{{{"k" * 200}="1"}} 1\n'
MANY_LABELS = "rljob_cards 1\nrljob_verl_metric{" + ",".join(f'l{n}="1"' for n in range(70)) + "} 1\n"
RAY = f"""ray_resources{{{OTHER},Name="NPU",State="USED",ray_node_type="head"}} 64
rljob_operator_card_seconds_total{{rljob_namespace="team-b",queue="cards"}} 1e9
rljob_cards{{{OTHER}}} 64
"""
NPU = """npu_chip_info_health_status{id="0",namespace="team-b",pod_name="victim"} 0
rljob_operator_card_seconds_total{rljob_namespace="team-b",queue="cards",job="rljob-operator"} 1e9
"""
PAGES: dict[str, str] = {
    "forged": FORGED,
    "old": OLD,
    "two-names": TWO_NAMES,
    "many": MANY,
    "million": MILLION,
    "unlisted": UNLISTED,
    "long-value": LONG_VALUE,
    "long-name": LONG_NAME,
    "many-labels": MANY_LABELS,
}
"""Pages of heads in the namespace team-a, by name of the pod."""
REFUSED = {
    "many": "sample limit exceeded",
    "million": "body size limit exceeded",
    "long-value": "label_value_length_limit exceeded",
    "long-name": "label_name_length_limit exceeded",
    "many-labels": "label_limit exceeded",
    "elsewhere": "302",
}
"""Pods that no sample is stored of, and Prometheus' reason."""


@dataclass(frozen=True)
class Attacked:
    """A Prometheus that has scraped hostile pages."""

    prometheus: Prometheus

    def health(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return health and last error by scrape job and pod."""
        found = {}
        for target in self.prometheus.targets():
            pod = target["discoveredLabels"]["__meta_kubernetes_pod_name"]
            found[target["labels"]["job"], pod] = target["health"], target["lastError"]
        return found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder, metrics = tmp_path_factory.mktemp("hostile"), Metrics()
    metrics.leader.set(1)
    metrics.card_seconds.labels("team-b", "cards").inc(10)
    head = {"rljob.dev/job": "mine", "ray.io/node-type": "head"}
    operator_labels = pick(render(), "Deployment")["spec"]["template"]["metadata"]["labels"]
    with ExitStack() as stack:

        def page(text: str) -> int:
            return stack.enter_context(served.page(lambda: text))

        victim = page("rljob_cards 2\n")
        pods = [
            served.pod("operator-1", "rljob-system", operator_labels, {"http": page(metrics.exposition().decode())}),
            served.pod("victim", "team-b", {**head, "rljob.dev/job": "victim"}, {"rljob-metrics": victim}),
            *(served.pod(name, "team-a", head, {"rljob-metrics": page(text)}) for name, text in PAGES.items()),
            served.pod("ray", "team-a", head, {"metrics": page(RAY)}),
            served.pod("poses-as-operator", "team-a", operator_labels, {"http": page(FORGED)}),
            served.pod("poses-as-npu-exporter", "team-a", {"app": "npu-exporter"}, {"http": page(NPU)}),
        ]
        elsewhere = stack.enter_context(served.redirecting(f"http://127.0.0.1:{victim}/metrics"))
        pods.append(served.pod("elsewhere", "team-a", head, {"rljob-metrics": elsewhere}))
        stack.enter_context(discovering(SCRAPE_CONFIG, folder, lambda: pods))
        settings = configuration(
            INTERVAL_SECONDS, scrape_jobs(SCRAPE_CONFIG, folder), write_rules(folder / "rules.yaml")
        )
        found = Attacked(stack.enter_context(running(folder / "prometheus", settings)))
        wait_for("every target has been scraped", _all_scraped(found, len(pods) - 2), 120, every=0.5)
        wait_for("rules are evaluated", lambda: bool(found.prometheus.at("rljob:pod:info")), 60, every=0.5)
        yield found


def _all_scraped(found: Attacked, count: int) -> Callable[[], bool]:
    def scraped() -> bool:
        health = found.health()
        return len(health) >= count and all(state != "unknown" for state, _ in health.values())

    return scraped


def _pods(series: list[Series]) -> set[tuple[str, str]]:
    return {(one.labels["namespace"], one.labels["pod"]) for one in series}


def test_no_page_can_speak_for_another_tenant(attacked: Attacked) -> None:
    of_the_other = attacked.prometheus.at('{rljob_namespace="team-b",job!="rljob-operator"}')
    of_the_other += attacked.prometheus.at('{namespace="team-b"}')
    assert _pods(of_the_other) == {("team-b", "victim")}
    (cards,) = attacked.prometheus.at('rljob_cards{rljob_namespace="team-b"}')
    assert list(cards.samples.values()) == [2]
    (job,) = {one.labels["rljob"] for one in attacked.prometheus.at('{pod="forged"}')}
    assert job == "mine"


def test_what_is_charged_comes_from_the_operator_alone(attacked: Attacked) -> None:
    charged = attacked.prometheus.at('{__name__=~"rljob_operator_.+"}')
    assert _pods(charged) == {("rljob-system", "operator-1")}
    (held,) = attacked.prometheus.at('rljob_operator_card_seconds_total{rljob_namespace="team-b"}')
    assert list(held.samples.values()) == [10]


def test_only_listed_names_are_stored(attacked: Attacked) -> None:
    stored = attacked.prometheus.at('{namespace="team-a",pod!="",__name__!~"scrape_.+|ALERTS.*"}')
    names = {one.labels["__name__"] for one in stored}
    assert names == {"up", "rljob_cards", "rljob_step", "rljob_reward_mean", "ray_resources"}
    assert not attacked.prometheus.at('{__name__=~"kube_.+|npu_.+|node_.+|rljob_phases"}')
    assert not attacked.prometheus.at('ALERTS{alertname="RLJobChipUnhealthy"}')
    assert {one.labels["pod_name"] for one in attacked.prometheus.at("rljob:pod:info")} == {"ray"}


def test_the_page_of_ray_has_the_identity_of_its_pod(attacked: Attacked) -> None:
    (found,) = attacked.prometheus.at("ray_resources")
    assert found.labels["rljob_namespace"] == found.labels["namespace"] == "team-a"
    assert (found.labels["rljob"], found.labels["pod"], found.labels["job"]) == ("mine", "ray", "rljob-ray")
    assert not [name for name in found.labels if name.startswith("exported_")]


def test_a_page_beyond_a_limit_fails_for_its_own_pod_only(attacked: Attacked) -> None:
    health = attacked.health()
    failed = {pod: reason for (_, pod), (state, reason) in health.items() if state == "down"}
    assert failed.keys() - {"two-names"} == REFUSED.keys()
    for pod, reason in REFUSED.items():
        assert reason in failed[pod]
        assert not attacked.prometheus.at(f'{{pod="{pod}",__name__!~"up|scrape_.+"}}')
    assert health["rljob-jobs", "victim"][0] == "up"


def test_time_is_not_taken_from_the_page(attacked: Attacked) -> None:
    assert attacked.health()["rljob-jobs", "old"] == ("up", "")
    (step,) = attacked.prometheus.at('rljob_step{pod="old"}')
    assert list(step.samples.values()) == [3]


def test_pods_that_pose_as_operator_or_npu_exporter_are_not_scraped(attacked: Attacked) -> None:
    assert not {pod for _, pod in attacked.health() if pod.startswith("poses-as-")}


def test_the_limit_of_samples_admits_the_largest_page_of_the_exporter() -> None:
    jobs = yaml.safe_load(SCRAPE_CONFIG.read_text())["scrape_configs"]
    (limit,) = [job["sample_limit"] for job in jobs if job["job_name"] == "rljob-jobs"]
    assert bound(256) < limit < 1.5 * bound(256)
