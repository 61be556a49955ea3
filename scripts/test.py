"""The stages of `make test`, `make check` and `make acceptance`: one row per stage.

`python -m scripts.test [check | all | acceptance | <stage> ...]` runs a table, or stages with their dependencies.

Add a stage by adding a row; `scripts.stages` runs them. The rows of a lane run in the order of the table, and lanes run
in parallel: long compilations start immediately, in the background, while the quick stages run.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from scripts.stages import Stage, run
from tests.cluster.images import RELEASES, UNFIT
from tests.cluster.paths import state

PYTHON = sys.executable
BIN = PYTHON.rsplit("/", 1)[0]
PYTEST = (PYTHON, "-m", "pytest", "--timeout=1800")
CLUSTER = (PYTHON, "-m", "tests.cluster")
CODE = ("operator", "runtime", "scripts", "tests", "benchmarks", "upstream")

# CI ends a run after this time. The rest is for ending processes that do not end themselves.
CI_MINUTES = 90.0
BUDGET_MINUTES = 88.0

# Every branch of the code that makes decisions must be tested by the unit tests.
COVERED = (
    *(f"--cov=rljob.{name}" for name in ("core", "render", "launchers")),
    "--cov-branch",
    "--cov-fail-under=100",
    "--cov-report=term:skip-covered",
)
ROTATION = "tests/chart/test_token_rotation.py"
UNIT = (
    *("operator/tests", "runtime/tests"),
    *("tests/house", "tests/cluster", "tests/contract_driver", "tests/scale"),
    "benchmarks",
    "upstream",
)
WITHOUT_CLUSTER = "not integration and not e2e and not audit and not cluster and not browser"
NOT_ON_A_CLUSTER = ("-m", WITHOUT_CLUSTER)

# Tests runs of the contract driver or, with RLJOB_E2E_TRAINER=verl, of verl.
LONG_RUNS = ("tests/e2e/test_documents.py", "tests/e2e/test_evaluation.py", "tests/e2e/test_export.py")
"""Runs of real training that belong to `make acceptance`; `make test` tests their parts."""
OF_RELEASES = ("tests/acceptance/test_old_ray.py", "tests/acceptance/test_nearest_image.py")
NOT_LONG = tuple(f"--ignore={path}" for path in LONG_RUNS)
WITH_VOLCANO = ("tests/scale/test_volcano.py", "tests/scale/test_asynchronous_queues.py")
"""`make queues` runs them: Volcano takes eight minutes to compile."""
LIFECYCLE = (*PYTEST, "--timeout=3600", "--durations=12")
BESIDE_EACH_OTHER = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Tests that mostly wait, by file, because those of a file may share a run; each worker has a namespace of its own."""


def unit(processes: int) -> tuple[str, ...]:
    """Return the command of the unit tests. Two processes collect all tests twice: only where nothing else runs."""
    return (*PYTEST, *NOT_ON_A_CLUSTER, *(("-n", f"{processes}") if processes > 1 else ()), *UNIT)


CHECK = (
    Stage("format", "ruff format --check", (f"{BIN}/ruff", "format", "--check", "--quiet", "."), 30),
    Stage("lint", "ruff check", (f"{BIN}/ruff", "check", "--output-format", "concise", "."), 30),
    Stage("types", "mypy --strict", (f"{BIN}/mypy", *CODE), 120),
    Stage("imports", "import contracts", (f"{BIN}/lint-imports", "--no-logo"), 120),
    Stage(
        "unit",
        "unit and property tests, house rules",
        unit(processes=2),
        900,
        lane="unit",
    ),
)

FULL = (
    # In the background, from the start. The usual times of these and of the browser's stage hold for empty caches.
    Stage("programs", "compile the cluster's programs", (*CLUSTER, "build"), 1800, lane="programs"),
    Stage("kueue", "compile Kueue", (*CLUSTER, "build", "kueue"), 450, lane="programs"),
    Stage("image", "build the operator's image", (*CLUSTER, "image", "build", "operator"), 600, lane="images"),
    Stage(
        "image-contract",
        "build the contract driver's image",
        (*CLUSTER, "image", "build", "contract", "own-runtime"),
        600,
        lane="images",
    ),
    Stage(
        "image-verl",
        "build the runtime's image, and images that do not fit",
        (*CLUSTER, "image", "build", "runtime-cpu", *UNFIT),
        1800,
        lane="images",
    ),
    Stage(
        "image-ascend",
        "build the stage of the Ascend image that needs no CANN",
        (*CLUSTER, "image", "build", "ascend-system"),
        600,
        lane="images",
    ),
    Stage(
        "image-emulated",
        "build the Python stack of the Ascend image on an emulated NPU",
        (*CLUSTER, "image", "build", "ascend-emulated"),
        600,
        lane="images",
    ),
    # In the meantime, without a cluster. What needs one is the longest chain, so nothing else stands before it.
    *(replace(stage, lane="unit") for stage in CHECK[:-1]),
    replace(CHECK[-1], command=unit(processes=1), usual=1500),
    Stage(
        "generated",
        "generated files are up to date",
        (PYTHON, "-m", "scripts.generate", "--check"),
        120,
        lane="programs",
    ),
    Stage(
        "chart",
        "the chart: lint, golden manifests, rejected values; dashboards, rules and scraping in Prometheus; CRDs",
        (*PYTEST, *NOT_ON_A_CLUSTER, "tests/chart"),
        150,
        lane="programs",
        after=("programs",),
    ),
    Stage("site", "build the site from docs/; its links", (PYTHON, "-m", "scripts.site"), 60, lane="programs"),
    # In the background, after the compilations: it downloads a browser and then takes seconds.
    Stage(
        "report",
        "the run report and the site in headless Chromium",
        (*PYTEST, "-m", "browser", "tests/report"),
        300,
        lane="programs",
        after=("site",),
    ),
    Stage("locks", "every lock file is up to date", ("scripts/lock", "--check"), 60, lane="programs"),
    # On the cluster, one after another.
    Stage("cluster", "start the local Kubernetes", (*CLUSTER, "up"), 60, after=("programs",)),
    Stage(
        "load",
        "load the images of operator and contract driver into the node",
        (*CLUSTER, "image", "load", "operator", "contract", "own-runtime"),
        60,
        after=("cluster", "image", "image-contract"),
    ),
    Stage(
        "load-verl",
        "load the runtime's image into the node",
        (*CLUSTER, "image", "load", "runtime-cpu"),
        150,
        lane="seams",
        after=("load", "image-verl"),
    ),
    Stage(
        "load-unfit",
        "load the images that the image check refuses into the node",
        (*CLUSTER, "image", "load", *UNFIT),
        90,
        lane="unfit",
        after=("load-verl",),
    ),
    Stage(
        "seams",
        "the tested parts of upstream packages, in the runtime image",
        (PYTHON, "-m", "scripts.in_image", "seams"),
        1080,
        lane="seams",
        after=("load-verl",),
    ),
    Stage(
        "load-emulated",
        "load the image with the emulated NPU into the node",
        (*CLUSTER, "image", "load", "ascend-emulated"),
        90,
        lane="seams",
        after=("load", "image-emulated"),
    ),
    Stage(
        "emulated",
        "one process each of rollout and trainer of the Ascend image, on an emulated NPU",
        (PYTHON, "-m", "scripts.in_image", "emulated"),
        90,
        lane="seams",
        after=("load-emulated",),
    ),
    Stage(
        "chart-live",
        "install, upgrade and uninstall the chart",
        (*PYTEST, "-m", "e2e", "tests/chart"),
        210,
        after=("load",),
    ),
    Stage(
        "contract",
        "the operator's Kubernetes client against a real API server",
        (
            "env",
            f"RLJOB_TEST_KUBECONFIG={state().admin_kubeconfig}",
            *PYTEST,
            "-m",
            "integration",
            "operator/tests/contract",
            ROTATION,
        ),
        720,
        after=("cluster",),
    ),
    Stage(
        "product",
        "install the operator with its chart",
        (PYTHON, "-m", "scripts.product", "operator", "contract", "own-runtime"),
        60,
        after=("load",),
        after_end_of=("chart-live", "contract", "hostile"),
    ),
    Stage(
        "e2e",
        "what jobs report and allocate before they train",
        (*PYTEST, *BESIDE_EACH_OTHER, "-m", "e2e and not lifecycle and not training", "--durations=28", "tests/e2e"),
        360,
        after=("product", "load-unfit"),
        # Beside seams, which start Ray too, a slow machine starts the heads of these jobs too late.
        after_end_of=("seams", "emulated"),
    ),
    Stage(
        "lifecycle",
        "faults, upgrades and suspensions during runs of the contract driver",
        (*LIFECYCLE, *BESIDE_EACH_OTHER, "-m", "lifecycle and not exclusive", "tests/e2e", "tests/chaos"),
        660,
        after=("product",),
        after_end_of=("e2e",),
    ),
    Stage(
        "scale",
        "several jobs, Ascend topologies, and teams in queues, on virtual nodes with separate control planes",
        (*PYTEST, "-m", "integration", "--durations=8", *(f"--ignore={path}" for path in WITH_VOLCANO), "tests/scale"),
        810,
        # Not beside lifecycle: on a slow machine its API server then answers 504.
        after=("programs", "kueue"),
        after_end_of=("unit", "seams", "emulated", "lifecycle"),
    ),
    Stage(
        "training",
        "the one run with real verl and vLLM",
        (*PYTEST, "-m", "training", "--durations=12", *NOT_LONG, "tests/e2e"),
        300,
        after=("product", "load-verl"),
        after_end_of=("lifecycle", "seams", "emulated", "scale"),
    ),
    Stage(
        "audit",
        "no request of the operator was denied, and all are in its table of permissions",
        (*PYTEST, "-m", "audit", "tests/e2e"),
        30,
        after=("product",),
        after_end_of=("e2e", "lifecycle", "training"),
    ),
    # The cluster is removed last, whatever the results of the other stages are.
    Stage(
        "down",
        "remove the cluster",
        (*CLUSTER, "down"),
        30,
        after_end_of=("cluster", "training", "audit", "chart-live", "contract", "load-unfit", "seams", "emulated"),
        last=True,
    ),
    Stage("leaks", "check that nothing of the cluster is left", (*CLUSTER, "leaks"), 30, after=("down",), last=True),
    Stage(
        "cluster-life",
        "start the cluster, recover from killed processes, and leave nothing behind",
        (*PYTEST, "-m", "cluster", "tests/integration"),
        90,
        after=("leaks",),
    ),
)


# Real runs that not every change requires: before a release, and when the runtime changes. The cluster keeps running.
ACCEPTANCE = (
    # Tracing costs up to three times the time of the tests, except on Python 3.14, where coverage uses sys.monitoring.
    Stage(
        "coverage",
        "every branch of core, render and launchers is reached by unit tests",
        (
            "env",
            "RLJOB_PROFILE=coverage",
            *PYTEST,
            "-m",
            f"{WITHOUT_CLUSTER} and not no_cover",
            *COVERED,
            "-n",
            "2",
            *UNIT,
        ),
        600,
    ),
    Stage(
        "local",
        "rljob run --local: train, Ctrl-C, resume",
        (PYTHON, "-m", "scripts.in_image", "local"),
        600,
        after=("load-verl",),
    ),
    Stage(
        "seams-long",
        "in the runtime image: whole runs that are killed and resumed, and upstream's way beside ours",
        (PYTHON, "-m", "scripts.in_image", "seams-long"),
        2400,
        after=("load-verl",),
    ),
    Stage(
        "emulated-long",
        "whole jobs of the Ascend image on an emulated NPU: parallel trainers, saved, stopped and resumed",
        (PYTHON, "-m", "scripts.in_image", "emulated-long"),
        1800,
        after=("load-emulated",),
    ),
    Stage(
        "algorithms",
        "PPO with a critic over two worker pods, asynchronous training with faults, an agent with a tool, and LoRA",
        (
            *PYTEST,
            "-m",
            "training",
            "--timeout=1800",
            "tests/acceptance/test_algorithms.py",
            "tests/acceptance/test_modes.py",
            "tests/acceptance/test_lora.py",
            "tests/acceptance/test_only_engine.py",
        ),
        1500,
        after=("product", "load-verl"),
    ),
    Stage("netpol", "compile what enforces NetworkPolicies", (*CLUSTER, "build", "netpol"), 300, after=("programs",)),
    Stage(
        "load-releases",
        "build and load images with packages of other releases",
        (*CLUSTER, "image", "load", *RELEASES),
        300,
        after=("load-verl",),
    ),
    Stage(
        "releases",
        "a recipe's script with a Ray without tokens, and a check of what published images have",
        (*PYTEST, "-m", "training", "--timeout=1800", "--durations=8", *OF_RELEASES),
        900,
        after=("product", "netpol", "load-releases"),
    ),
    Stage(
        "documents",
        "the commands of the documentation, and the export of a trained model",
        (*PYTEST, "-m", "training", "--timeout=1800", "--durations=12", *LONG_RUNS),
        1200,
        after=("product", "load-verl"),
    ),
    Stage(
        "device-fault",
        "a device becomes unhealthy during a run, with no other job on the node",
        (*LIFECYCLE, "-m", "lifecycle and exclusive", "tests/e2e", "tests/chaos"),
        270,
        after=("product",),
    ),
    Stage(
        "training-long",
        "the run of the stage training until it has learned, with a killed worker and an evaluation",
        ("env", "RLJOB_LONG=1", *PYTEST, "-m", "training", "--durations=12", *NOT_LONG, "tests/e2e"),
        570,
        after=("product", "load-verl"),
    ),
    Stage(
        "hostile",
        "ten times the hostile tenant of the stage contract: 300 large jobs, 400 silent heads, 200 marked ConfigMaps",
        (
            *("env", f"RLJOB_TEST_KUBECONFIG={state().admin_kubeconfig}", "RLJOB_HOSTILE=10"),
            *(*PYTEST, "-s", "operator/tests/contract/test_hostile.py"),
        ),
        900,
        # The operator is installed after it.
        lane="hostile",
        after=("cluster",),
    ),
    Stage(
        "hostile-tenant",
        "300 large jobs of one tenant under the installed operator, and a job of another",
        (*PYTEST, "-s", "--timeout=2400", "tests/acceptance/test_hostile_tenant.py"),
        600,
        after=("product",),
        after_end_of=("hostile",),
    ),
    Stage(
        "lifecycle-verl",
        "the lifecycle tests with verl",
        ("env", "RLJOB_E2E_TRAINER=verl", *LIFECYCLE, "-m", "lifecycle", "tests/e2e", "tests/chaos"),
        5400,
        after=("product", "load-verl"),
    ),
)
ACCEPTANCE_MINUTES = 360.0


def choose(words: list[str]) -> tuple[Stage, ...]:
    """Return the stages named on the command line, with their dependencies."""
    if words in ([], ["all"]):
        return FULL
    if words == ["check"]:
        return CHECK
    if set(words) <= {stage.name for stage in CHECK}:
        return tuple(stage for stage in CHECK if stage.name in words)
    rows = {stage.name: stage for stage in (*FULL, *ACCEPTANCE)}
    if words == ["acceptance"]:
        words = [stage.name for stage in ACCEPTANCE]
    if unknown := sorted(set(words) - set(rows)):
        raise SystemExit(f"unknown stage {', '.join(unknown)}; choose from all, check, acceptance, {', '.join(rows)}")
    wanted: set[str] = set()
    pending = list(words)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(rows[name].after)
    return tuple(stage for stage in rows.values() if stage.name in wanted)


def main() -> None:
    """Run the chosen stages. Exit with code 1 if one does not pass."""
    parser = argparse.ArgumentParser(prog="scripts.test", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stages", nargs="*", help="all (default), check, acceptance, or the names of stages")
    parser.add_argument("--list", action="store_true", help="list the stages with their usual times, and exit")
    arguments = parser.parse_args()
    stages = choose(arguments.stages)
    if arguments.list:
        for stage in stages:
            print(f"{stage.name:<14} {stage.lane:<9} {stage.usual:>5.0f} s  {stage.description}")
        return
    minutes = ACCEPTANCE_MINUTES if set(stages) & set(ACCEPTANCE) else BUDGET_MINUTES
    sys.exit(0 if run(stages, budget_minutes=minutes) else 1)


if __name__ == "__main__":
    main()
