"""The stages of `make test`, `make check` and `make acceptance`: one row per stage.

`python -m scripts.test [check | all | acceptance | <stage> ...]` runs a table, or stages with their dependencies.

Add a stage by adding a row; `scripts.stages` runs them. The rows of a lane run in the order of the table, and lanes run
in parallel: long compilations start immediately, in the background, while the quick stages run.
"""

from __future__ import annotations

import argparse
import sys

from scripts.stages import Stage, run
from tests.cluster.images import UNFIT
from tests.cluster.paths import state

PYTHON = sys.executable
BIN = PYTHON.rsplit("/", 1)[0]
PYTEST = (PYTHON, "-m", "pytest", "--timeout=600")
CLUSTER = (PYTHON, "-m", "tests.cluster")
CODE = ("operator", "runtime", "scripts", "tests", "benchmarks")

# The hard limit of CI is 90 minutes, which must include the cleanup.
BUDGET_MINUTES = 85.0

# Every branch of the code that makes decisions must be tested.
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
)
NOT_ON_A_CLUSTER = ("-m", "not integration and not e2e and not audit and not cluster and not browser")

# Tests runs of the contract driver or, with RLJOB_E2E_TRAINER=verl, of verl.
LONG_RUNS = ("tests/e2e/test_documents.py", "tests/e2e/test_evaluation.py", "tests/e2e/test_export.py")
"""Runs of real training that belong to `make acceptance`; `make test` has shorter tests of the same."""
NOT_LONG = tuple(f"--ignore={path}" for path in LONG_RUNS)
LIFECYCLE = (*PYTEST, "-m", "lifecycle", "--timeout=3600", "--durations=12")

CHECK = (
    Stage("format", "ruff format --check", (f"{BIN}/ruff", "format", "--check", "--quiet", "."), 1),
    Stage("lint", "ruff check", (f"{BIN}/ruff", "check", "--output-format", "concise", "."), 1),
    Stage("types", "mypy --strict", (f"{BIN}/mypy", *CODE), 5),
    Stage("imports", "import contracts", (f"{BIN}/lint-imports", "--no-logo"), 1),
    Stage(
        "unit",
        "unit and property tests, house rules",
        (
            *PYTEST,
            *NOT_ON_A_CLUSTER,
            *COVERED,
            "-n",
            "2",
            *UNIT,
        ),
        # Four to ten minutes alone. It yields to the stages of the cluster, and to compilers in a first run.
        50,
        # CPU-bound, and runs while the stages on the cluster mostly wait.
        lane="unit",
    ),
)

FULL = (
    # In the background, from the start.
    Stage("programs", "compile the cluster's programs", (*CLUSTER, "build"), 45, lane="programs"),
    Stage("kwok", "compile KWOK and Kueue", (*CLUSTER, "build", "kwok", "kueue"), 30, lane="programs"),
    Stage("image", "build the operator's image", (*CLUSTER, "image", "build", "operator"), 15, lane="images"),
    Stage(
        "image-contract",
        "build the contract driver's image",
        (*CLUSTER, "image", "build", "contract", "own-runtime"),
        15,
        lane="images",
    ),
    Stage(
        "image-verl",
        "build the runtime's image, and images that do not fit",
        (*CLUSTER, "image", "build", "runtime-cpu", *UNFIT),
        40,
        lane="images",
    ),
    Stage(
        "image-ascend",
        "build the stage of the Ascend image that needs no CANN",
        (*CLUSTER, "image", "build", "ascend-system"),
        10,
        lane="images",
    ),
    # In the meantime, without a cluster.
    *CHECK,
    Stage("generated", "generated files are up to date", (PYTHON, "-m", "scripts.generate", "--check"), 1),
    Stage(
        "chart",
        "the chart: lint, golden manifests, rejected values; dashboards, rules and scraping in Prometheus; CRDs",
        (*PYTEST, *NOT_ON_A_CLUSTER, "tests/chart"),
        5,
        after=("programs",),
    ),
    # In the background, after the compilations: it downloads a browser and then takes seconds.
    Stage(
        "report",
        "the run report in headless Chromium",
        (*PYTEST, "-m", "browser", "tests/report"),
        8,
        lane="programs",
    ),
    Stage("locks", "every lock file is up to date", ("scripts/lock", "--check"), 5, lane="programs"),
    Stage("site", "build the site from docs/; its links", (PYTHON, "-m", "scripts.site"), 3, lane="programs"),
    # On the cluster, one after another.
    Stage("cluster", "start the local Kubernetes", (*CLUSTER, "up"), 10, after=("programs",)),
    Stage(
        "load",
        "load the images of operator and contract driver into the node",
        (*CLUSTER, "image", "load", "operator", "contract", "own-runtime"),
        10,
        after=("cluster", "image", "image-contract"),
    ),
    Stage(
        "load-verl",
        "load the runtime's image into the node",
        (*CLUSTER, "image", "load", "runtime-cpu", *UNFIT),
        10,
        lane="seams",
        after=("load", "image-verl"),
    ),
    Stage(
        "seams",
        "the tested parts of upstream packages, in the runtime image",
        (PYTHON, "-m", "scripts.in_image", "seams"),
        40,
        # One CPU-bound process, in parallel with stages that mostly wait.
        lane="seams",
        after=("load-verl",),
    ),
    Stage(
        "chart-live",
        "install, upgrade and uninstall the chart",
        (*PYTEST, "-m", "e2e", "tests/chart"),
        10,
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
            "operator/tests",
            ROTATION,
        ),
        # Processes under attack, objects of more than a megabyte, and pods by each check of Pod Security.
        30,
        after=("cluster",),
    ),
    Stage(
        "product",
        "install the operator with its chart",
        (PYTHON, "-m", "scripts.product", "operator", "contract", "own-runtime"),
        10,
        after=("load",),
        after_end_of=("chart-live", "contract"),
    ),
    Stage(
        "scale",
        "several jobs, Ascend topologies, and teams in queues, on KWOK with separate control planes",
        # Volcano takes eight minutes to compile, so `make queues` runs its test.
        (*PYTEST, "-m", "integration", "--durations=8", "--ignore=tests/scale/test_volcano.py", "tests/scale"),
        30,
        lane="scale",
        # Only in parallel with stages that mostly wait: next to one that uses every core, requests time out and are
        # counted as errors.
        after=("programs", "kwok"),
        after_end_of=("unit", "seams"),
    ),
    Stage(
        "e2e",
        "what jobs report and allocate before they train",
        (*PYTEST, "-m", "e2e and not lifecycle and not training", "--durations=28", "tests/e2e"),
        20,
        after=("product",),
    ),
    Stage(
        "lifecycle",
        "faults, upgrades and suspensions during runs of the contract driver",
        (*LIFECYCLE, "tests/e2e", "tests/chaos"),
        30,
        after=("product",),
        after_end_of=("e2e", "scale"),
    ),
    Stage(
        "training",
        "the one run with real verl and vLLM",
        (*PYTEST, "-m", "training", "--timeout=1800", "--durations=12", *NOT_LONG, "tests/e2e"),
        30,
        after=("product", "load-verl"),
        after_end_of=("lifecycle", "seams", "scale"),
    ),
    Stage(
        "audit",
        "no request of the operator was denied, and all are in its table of permissions",
        (*PYTEST, "-m", "audit", "tests/e2e"),
        2,
        after=("product",),
        after_end_of=("e2e", "lifecycle", "training"),
    ),
    # The cluster is removed last, whatever the results of the other stages are.
    Stage(
        "down",
        "remove the cluster",
        (*CLUSTER, "down"),
        5,
        after_end_of=("cluster", "training", "audit", "chart-live", "contract", "seams"),
        last=True,
    ),
    Stage("leaks", "check that nothing of the cluster is left", (*CLUSTER, "leaks"), 2, after=("down",)),
    Stage(
        "cluster-life",
        "start the cluster, recover from killed processes, and leave nothing behind",
        (*PYTEST, "-m", "cluster", "tests/integration"),
        15,
        after=("leaks",),
    ),
)


# Real runs that not every change requires: before a release, and when the runtime changes. The cluster keeps running.
ACCEPTANCE = (
    Stage(
        "local",
        "rljob run --local: train, Ctrl-C, resume",
        (PYTHON, "-m", "scripts.in_image", "local"),
        22,
        after=("load-verl",),
    ),
    Stage(
        "algorithms",
        "PPO with a critic over two worker pods",
        (*PYTEST, "-m", "training", "--timeout=1800", "tests/acceptance"),
        25,
        after=("product", "load-verl"),
    ),
    Stage(
        "documents",
        "the commands of the documentation, and the export of a trained model",
        (*PYTEST, "-m", "training", "--timeout=1800", "--durations=12", *LONG_RUNS),
        40,
        after=("product", "load-verl"),
    ),
    Stage(
        "lifecycle-verl",
        "the lifecycle tests with verl",
        ("env", "RLJOB_E2E_TRAINER=verl", *LIFECYCLE, "tests/e2e", "tests/chaos"),
        120,
        after=("product", "load-verl"),
    ),
)
ACCEPTANCE_MINUTES = 240.0


def choose(words: list[str]) -> tuple[Stage, ...]:
    """Return the stages named on the command line, with their dependencies."""
    if words in ([], ["all"]):
        return FULL
    if words == ["check"]:
        return CHECK
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
    parser.add_argument("--list", action="store_true", help="list the stages and exit")
    arguments = parser.parse_args()
    stages = choose(arguments.stages)
    if arguments.list:
        for stage in stages:
            print(f"{stage.name:<14} {stage.lane:<9} {stage.description}")
        return
    minutes = ACCEPTANCE_MINUTES if set(stages) & set(ACCEPTANCE) else BUDGET_MINUTES
    sys.exit(0 if run(stages, budget_minutes=minutes) else 1)


if __name__ == "__main__":
    main()
