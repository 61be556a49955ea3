"""Measure the taps in one local run of the quickstart, with taps on and off from step to step, and a scraped exporter.

It runs where the runtime's packages are (`make tap-cost` uses the image): it starts `rljob run --local` with `switch`
in verl's processes and the exporter beside it, scrapes the exporter as Prometheus would while the taps are on,
interrupts the run when the time is over, and prints the measurements as one line of JSON, and then the cost.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tap_cost.figures import WARM_UP_PAIRS, Cost, Estimate, Step, bootstrap, cost, pairs
from benchmarks.tap_cost.shared import FOLDER_VARIABLE, STEPS_FILE, Holder, Shared
from rljob_runtime.contract import PodVariable

QUICKSTART = Path(os.environ.get("RLJOB_EXAMPLES", "examples")) / "quickstart.yaml"
STEPS = 1000
"""More steps than the time allows, so that the time ends the run."""
SCRAPE_SECONDS = 15.0
"""Prometheus's usual interval, counted in time with taps: half of the steps are without, and are not scraped."""
LOOK_SECONDS = 0.25
END_SECONDS = 60.0
GOAL = 0.01
PACKAGES = ("verl", "vllm", "ray", "torch")
# A proxy of the environment is for external traffic.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
MODULE = "benchmarks.tap_cost.switch"


def small_quickstart() -> str:
    """Return the quickstart on one device, with a model that was hardly pretrained, and without checkpoints."""
    documents = list(yaml.safe_load_all(QUICKSTART.read_text()))
    for document in documents:
        if document["kind"] == "RLJob":
            document["spec"]["trainer"]["steps"] = STEPS
            document["spec"]["workerGroups"][0]["devicesPerNode"] = 1
            document["spec"]["observability"]["samples"] = {"everySteps": 1}
            document["spec"]["checkpoint"] = {"path": "/data/checkpoints", "everySteps": STEPS}
            # The same number of tokens in every step, because differences between steps would hide the effect.
            document["spec"]["verl"] = {"overrides": "actor_rollout_ref.rollout.ignore_eos: true\n"}
        elif document["kind"] == "ConfigMap":
            script = document["data"]["prepare.py"]
            document["data"]["prepare.py"] = script.replace("WARM_UP_STEPS = 1000", "WARM_UP_STEPS = 30")
    # As JSON, because PyYAML writes the string "1e-3" without quotes.
    return "\n---\n".join(json.dumps(document) for document in documents)


@dataclass
class Scraper:
    """The exporter as a process of its own, and the cost of its scrapes."""

    work: Path
    port: int = 0
    seconds: list[float] = field(default_factory=list)
    """Duration of each scrape, from the request to the last byte."""
    page_bytes: int = 0
    """Size of the last page."""
    process: subprocess.Popen[bytes] | None = None
    _cpu_begun: float | None = None

    def start(self) -> int:
        """Start it as the head's sidecar is started, and return its process ID."""
        self.port, api = free_port(), free_port()
        variables: dict[str, str] = {
            PodVariable.CONFIG: str(self.work / "job.json"),
            PodVariable.SPOOL: str(self.work / "spool"),
            PodVariable.METRICS_PORT: str(self.port),
            PodVariable.API_PORT: str(api),
        }
        command = [sys.executable, "-m", "rljob_runtime", "exporter"]
        self.process = subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.DEVNULL)
        return self.process.pid

    def scrape(self) -> None:
        """Read one page as Prometheus does."""
        if self._cpu_begun is None:
            self._cpu_begun = self.cpu_seconds()
        begun = time.perf_counter()
        try:
            with OPENER.open(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                self.page_bytes = len(answer.read())
        except (OSError, urllib.error.URLError):
            return
        self.seconds.append(time.perf_counter() - begun)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the exporter so far."""
        if self.process is None:
            return 0.0
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> float:
        """Stop it and return the CPU time per scrape."""
        used = self.cpu_seconds() - (self._cpu_begun or 0.0)
        if self.process is not None:
            self.process.terminate()
            self.process.wait(END_SECONDS)
        return used / len(self.seconds) if self.seconds else 0.0


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run(folder: Path, seconds: float) -> Scraper:
    """Run the job for this time."""
    work = folder / "work"
    (folder / "job.yaml").write_text(small_quickstart())
    Shared.create(folder)
    shared, scraper = Shared(folder), Scraper(work)
    variables = {FOLDER_VARIABLE: str(folder), "VERL_USE_EXTERNAL_MODULES": MODULE}
    command = [sys.executable, "-m", "rljob.cli.main", "run", "--local", "-f", "job.yaml", "--workdir", str(work)]
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **variables})
    try:
        shared.hold(Holder.EXPORTER, scraper.start())
        now = time.monotonic()
        end, with_taps = now + seconds, 0.0
        while process.poll() is None and now < end:
            time.sleep(LOOK_SECONDS)
            before, now = now, time.monotonic()
            if shared.on:
                with_taps += now - before
                if with_taps >= SCRAPE_SECONDS:
                    with_taps -= SCRAPE_SECONDS
                    scraper.scrape()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                # The second interrupt does not wait for the step; the run's own guard ends what is left.
                process.send_signal(signal.SIGINT)
                process.wait(END_SECONDS)
    return scraper


def machine() -> dict[str, Any]:
    """Describe the machine."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    memory = Path("/proc/meminfo").read_text().splitlines()
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": next((line.partition(":")[2].strip() for line in cpus if line.startswith("model name")), ""),
        "architecture": platform.machine(),
        "memory_gib": round(int(memory[0].split()[1]) / 2**20, 1),
        "python": platform.python_version(),
        **versions,
    }


def goal(found: Estimate) -> str:
    """Return on which side of the goal the whole interval is."""
    if found.high < GOAL:
        return "below"
    return "above" if found.low >= GOAL else "neither shown below nor above"


def report(found: Cost, scrapes: Mapping[str, Any], where: Mapping[str, Any], load: tuple[float, float]) -> str:
    """Format the cost for people."""
    parts = ", ".join(f"{name} {seconds * 1000:.2f} ms" for name, seconds in found.parts.items())
    return f"""
machine: {", ".join(f"{key} {value}" for key, value in where.items())}
load over one minute: {load[0]:.1f} at the start, {load[1]:.1f} at the end

{found.difference.count} pairs of steps, one with and one without taps, after {WARM_UP_PAIRS} pairs to warm up
step without taps (median): {found.off_seconds:.3f} s, {found.requests:.0f} requests
within our code, a step:    {found.within_seconds * 1000:.2f} ms (median); mean of {parts}
  share of a step:          {found.within.text(100, 3)} %, {goal(found.within)} {GOAL:.0%}
on less off, trainer, router and exporter, which use {found.holders_seconds * 1000:.0f} ms of processor time a step:
  share of a step:          {found.holders.text(100)} %, {goal(found.holders)} {GOAL:.0%}
  at one pace:              {found.paced.text(100)} %, {goal(found.paced)} {GOAL:.0%}
on less off, processor:     {found.processor.text(100)} % of a step, {goal(found.processor)} {GOAL:.0%}
on less off, by the clock:  {found.difference.text(100)} % of a step, {goal(found.difference)} {GOAL:.0%}
exporter, scraped at every {SCRAPE_SECONDS:.0f} s with taps: {scrapes["count"]} scrapes of {scrapes["bytes"]} bytes, \
{scrapes["seconds"]} s each, {scrapes["cpu_seconds"] * 1000:.1f} ms of processor time each
  share of a core:          {scrapes["core_share"]:.3%}
([…] is the 95 % interval of the mean, by bootstrap over steps or pairs)
"""


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="tap_cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="from the start of the run to its interruption")
    options = parser.parse_args()
    begun = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="tap-cost-"))
    try:
        scraper = run(folder, options.seconds)
        cpu_seconds = scraper.end()
        file = folder / STEPS_FILE
        lines = file.read_text().splitlines() if file.exists() else []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    steps = [Step.read(json.loads(line)) for line in lines]
    measured = pairs(steps)
    if len(measured) < WARM_UP_PAIRS or not scraper.seconds:
        problem = f"{len(steps)} steps and {len(scraper.seconds)} scrapes in {options.seconds:.0f} s are too few"
        print(f"tap_cost: {problem}; see the run's own output above", file=sys.stderr)
        return 1
    scrapes = {
        "count": len(scraper.seconds),
        "bytes": scraper.page_bytes,
        "seconds": bootstrap(scraper.seconds).text(digits=3),
        "cpu_seconds": cpu_seconds,
        "core_share": cpu_seconds / SCRAPE_SECONDS,
    }
    found, where, load = cost(measured), machine(), (begun, os.getloadavg()[0])
    print(
        json.dumps(
            {
                "machine": where,
                "load": load,
                "cost": dataclasses.asdict(found),
                "scrapes": scrapes,
                "steps": [dataclasses.asdict(step) for step in steps],
            }
        )
    )
    print(report(found, scrapes, where, load))
    return 0


if __name__ == "__main__":
    sys.exit(main())
