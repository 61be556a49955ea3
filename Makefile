# Every target that is meant for people carries a `##` line; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python

# The environment is checked before everything else; up to date, that takes a few milliseconds.
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: ## make or update .venv from the hashed locks
	@scripts/bootstrap

.PHONY: demo
demo: venv ## train a model on a local cluster from nothing and look at it (DEMO_CLUSTER=existing: on yours)
	@$(PY) -m scripts.demo

.PHONY: check
check: venv ## what needs no cluster: format, lint, types, unit and property tests
	@$(PY) -m scripts.test check

.PHONY: test
test: venv ## all that decides whether a change may land
	@$(PY) -m scripts.test

.PHONY: compat
compat: venv ## test beside other releases of Python, Kubernetes, KubeRay and Helm, and the locks of arm64
	@$(PY) -m scripts.compat

.PHONY: acceptance
acceptance: venv ## coverage, and real training that `make test` leaves out: local run, algorithms, lifecycle with verl
	@$(PY) -m scripts.test acceptance

.PHONY: coverage
coverage: venv ## measure that unit tests reach every branch of core, render and launchers; part of acceptance
	@$(PY) -m scripts.test coverage

.PHONY: format
format: venv ## let ruff format and fix what it can
	@.venv/bin/ruff format --quiet . && .venv/bin/ruff check --fix --quiet .

.PHONY: lint
lint: venv ## ruff and mypy only
	@$(PY) -m scripts.test format lint types

.PHONY: generate
generate: venv ## write the generated files: CRDs, quickstart, reference pages
	@$(PY) -m scripts.generate

.PHONY: verify
verify: venv ## fail when a generated file is stale
	@$(PY) -m scripts.generate --check

.PHONY: install-manifest
install-manifest: venv ## write build/install.yaml for sites without Helm (REGISTRY, TAG: of the operator's image)
	@$(PY) -m scripts.release.manifest $(or $(REGISTRY),rljob.local) $(or $(TAG),dev) build/install.yaml

.PHONY: site
site: venv ## build the documentation, English and Chinese, as a site in build/site/html
	@$(PY) -m scripts.site

.PHONY: pictures
pictures: venv ## draw the pictures of the documentation: the report, and the boards of the last run of `make test`
	@PYTHONPATH=operator/tests $(PY) -m tests.report
	@$(PY) -m tests.monitoring.pictures build/e2e

.PHONY: chart
chart: venv ## lint the chart and compare it with its golden manifests
	@$(PY) -m scripts.test chart

.PHONY: images
images: venv ## build the images of operator and runtime, unless nothing changed
	@$(PY) -m tests.cluster image build operator
	@$(PY) -m tests.cluster image build runtime-cpu

.PHONY: image-python
image-python: venv ## build the CPU image with another Python of this machine: PYTHON=3.12
	@$(PY) -m scripts.other_python $(PYTHON)

.PHONY: wheels
wheels: venv ## build the wheels of operator and runtime into dist/
	@$(PY) -m scripts.wheels

.PHONY: cluster-up
cluster-up: venv ## start or repair the local Kubernetes with KubeRay and fake NPUs
	@$(PY) -m tests.cluster up

.PHONY: cluster-down
cluster-down: venv ## remove the local Kubernetes
	@$(PY) -m tests.cluster down

.PHONY: kubeconfig
kubeconfig: venv ## print the path of the local cluster's kubeconfig
	@$(PY) -m tests.cluster kubeconfig

.PHONY: install
install: venv ## install or upgrade the operator in the running local cluster, from this checkout
	@$(PY) -m scripts.product

.PHONY: test-image
test-image: venv ## test upstream's seams and local runs in the runtime image, on the running local cluster
	@$(PY) -m scripts.in_image seams local

.PHONY: planners
planners: venv ## compare planners with the algorithms of others, in the runtime image on the running local cluster
	@$(PY) -m scripts.in_image planners

.PHONY: garbage
garbage: venv ## measure how long the processes of a run pause for garbage, in the runtime image on the running local cluster
	@$(PY) -m scripts.in_image garbage

.PHONY: tap-cost
tap-cost: venv ## measure what the runtime's hooks cost a run, in the runtime image on the running local cluster
	@$(PY) -m scripts.in_image tap-cost

.PHONY: switches
switches: venv ## train the quickstart without and with its optimizations on the running local cluster
	@$(PY) -m benchmarks.switches

.PHONY: start-time
start-time: venv ## measure where the time of a start goes, in the runtime image on the running local cluster
	@$(PY) -m scripts.in_image start-time

.PHONY: fuzz
fuzz: venv ## mutate every field of every example 20,000 times and expect no crash (FUZZ_EXAMPLES=n)
	@RLJOB_FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),20000) $(PY) -m pytest -q -s --timeout=3600 operator/tests/property/test_fuzz.py

.PHONY: hostile
hostile: venv ## a hostile tenant in full size, against a process and then the installed operator; part of acceptance
	@$(PY) -m scripts.test hostile hostile-tenant

.PHONY: scale
scale: venv ## 1,000 RLJobs, then as many RayJobs, on virtual nodes with a real API server and KubeRay (SCALE_JOBS, SCALE_WORKERS)
	@$(PY) -m tests.scale

.PHONY: soak
soak: venv ## run waves of jobs through one operator and report its memory (SOAK_MINUTES, 30)
	@$(PY) -m tests.scale.soak

.PHONY: chaos
chaos: venv ## inject faults at every write of every scenario, in memory, and in 20,000 random examples (CHAOS_EXAMPLES=n)
	@RLJOB_CHAOS=$(or $(CHAOS_EXAMPLES),20000) $(PY) -m pytest -q --timeout=36000 -n 2 --dist worksteal \
		operator/tests/property/test_chaos.py operator/tests/property/test_machine.py

.PHONY: chaos-cluster
chaos-cluster: venv ## run the fault tests of tests/chaos on the running local cluster (after make cluster-up install)
	@$(PY) -m tests.cluster image load contract
	@$(PY) -m pytest -q -s -m "e2e and not queue" --ignore=tests/chaos/test_two_nodes.py --timeout=2400 tests/chaos

.PHONY: queues
queues: venv ## jobs under a real Kueue and Volcano: on virtual nodes, and on the running local cluster (after make cluster-up install)
	@$(PY) -m tests.cluster build kueue volcano
	@$(PY) -m tests.cluster image load contract
	@$(PY) -m pytest -q -s -m queue --timeout=1500 tests/scale tests/chaos

.PHONY: fleet
fleet: venv ## 200 jobs of three teams on 80 simulated Ascend nodes under a real Kueue, with faults (FLEET_JOBS, FLEET_SEED)
	@$(PY) -m tests.cluster build kueue
	@$(PY) -m tests.scale.fleet

.PHONY: lock
lock: venv ## resolve all requirements and write the hashed locks
	@scripts/lock

.PHONY: upstream-facts
upstream-facts: venv ## read the tables in upstream/ again, when a pin moves (SOURCES=folder of wheels and bare clones)
	@$(PY) -m upstream.facts $(SOURCES)

.PHONY: upstream
upstream: venv ## print the newest release of every pinned upstream, and what moved in newer ones of verl and vllm-ascend
	@$(PY) -m upstream.newer

.PHONY: clean
clean: ## remove what tests and tools left in the checkout; the cluster and its cache stay
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
