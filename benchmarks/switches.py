"""The quickstart with every optimization disabled, then with every one on Auto, on the local cluster.

`make cluster-up install && python -m benchmarks.switches`, about 12 minutes; nothing else should run on the machine. It
prints the rewards of both runs and the medians of a step's seconds, without the first step, which warms up.
"""

from __future__ import annotations

import statistics
from typing import Any

from tests.e2e import quickstart
from tests.e2e.conftest import cluster
from tests.e2e.recorded_run import Record, run_with_faults
from tests.kube import Kube, wait_for

NAMESPACE = "rljob-switches"
OFF = dict.fromkeys(("skipOldLogProb", "batchBalance", "coreBinding", "gcFreeze"), "Disabled") | {
    "loadBalancer": "RequestCount"
}
ARMS: dict[str, dict[str, str]] = {"disabled": OFF, "auto": {}}
STAGES = ("step", "gen", "reward", "old_log_prob", "adv", "update_actor", "update_weights")
RUN_SECONDS = 1500.0
REWARD = "critic/score/mean"
SHOWN = 5
"""Steps at each end whose mean reward is printed."""


def run(kube: Kube, name: str, switches: dict[str, str]) -> Record:
    """Run the quickstart to its end and return what was seen."""
    record = Record(name)
    job = quickstart.variant(name, optimizations=switches)
    for seen in run_with_faults(kube, job, (), RUN_SECONDS):
        record = seen
    return record


def seconds(lines: list[dict[str, Any]], stage: str) -> float | None:
    """Return the median of a stage's seconds, or None if no step reports it."""
    found = [line["metrics"].get(f"timing_s/{stage}") for line in lines[1:]]
    return statistics.median(float(one) for one in found) if None not in found else None


def main() -> None:
    """Run both and print them side by side."""
    kube = Kube(f"{cluster('path', 'kube')}/kubectl", cluster("kubeconfig"), NAMESPACE)
    kube.delete("namespace", NAMESPACE)
    kube.run("create", "namespace", NAMESPACE)
    kube.apply(*quickstart.surroundings())
    try:
        records = {name: run(kube, name, switches) for name, switches in ARMS.items()}
    finally:
        kube.delete("namespace", NAMESPACE, wait=False)
        wait_for("the namespace is gone", lambda: kube.get("namespace", NAMESPACE) is None, 180)
    for name, record in records.items():
        rewards = [float(line["metrics"][REWARD]) for line in record.lines]
        first, last = statistics.fmean(rewards[:SHOWN]), statistics.fmean(rewards[-SHOWN:])
        print(f"{name}: {len(rewards)} steps, reward {first:.3f} -> {last:.3f}")
        for decision in record.status.get("resolved", {}).get("decisions", ()):
            if decision["name"].startswith("optimizations."):
                print(f"  {decision['name']}: {decision['value']}: {decision.get('reason', '')}")
    for stage in STAGES:
        medians = {name: seconds(record.lines, stage) for name, record in records.items()}
        print(f"{stage:<16}" + "  ".join(f"{name} {median:8.3f} s" for name, median in medians.items() if median))


if __name__ == "__main__":
    main()
