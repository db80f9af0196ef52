# `make` alone lists the main targets; a comment says what each of the others does.
# Each installs what it needs from the locks, once: running takes less than developing.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
DEVELOPING := $(VENV)/.developing
ATHERIS := $(VENV)/atheris
AXE := $(VENV)/axe
RELEASING := $(VENV)/releasing
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
ENGINE ?= $(firstword $(foreach engine,docker podman buildah,$(shell command -v $(engine))))
WORKERS ?= 2
# A file's tests share servers, and some of them an order: each file stays with one worker, the slow ones come first.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
DOCKER = $(filter docker,$(notdir $(ENGINE)))
EPOCH = $(shell git log -1 --format=%ct)
# A switch is off without a value, and with one that says so.
on = $(filter-out 0 no off false,$(1))

.DEFAULT_GOAL := help
.PHONY: help demo test sim crash-matrix mutants attacks under-attack input fuzz perturb test-determinism test-real test-node test-page test-k3s test-kueue test-frameworks lint types fmt bench bench-parts binaries control-plane crds rbac pages site chart replay image wheels sbom provenance audit release based ha soak lock clean

# Those that one needs every day; what proves more is in docs/reliability.md, what releases in docs/releasing.md.
help:
	@for group in try check prove make; do \
	  echo "$$group:"; \
	  sed -nE "s/^([a-z0-9-]+):.*## $$group: /  \1\t/p" $(MAKEFILE_LIST) | expand -t 20; \
	done

demo: $(READY) $(if $(filter real,$(CLUSTER)),binaries) $(if $(filter k3s,$(CLUSTER)),$(DEVELOPING)) ## try: train a model elastically, then replay its history (KEEP=1 leaves it running; CLUSTER=real|k3s|current)
	@$(VENV)/bin/muster demo $(if $(call on,$(KEEP)),--keep) $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(IMAGE),--image $(IMAGE))

test: $(DEVELOPING) $(if $(call on,$(REAL)),binaries) ## check: unit, property, contract and embedded end-to-end tests (WORKERS=2, 0 for one process; REAL=1 with those of test-real)
	@$(if $(call on,$(REAL)),$(RUN) -m devcluster.binaries bench)
	@$(RUN) -m pytest $(if $(call on,$(REAL)),-m "real or not (node or k3s or frameworks or kueue or page)") $(PARALLEL)

sim: $(DEVELOPING) ## prove: the whole system under faults on a virtual clock (SEEDS=1000, or SEED=n for one)
	@$(RUN) -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000))

crash-matrix: $(DEVELOPING) # each protocol broken at each of its events in every way, simulated (PAIRS=1: at two; INTO=FILE)
	@$(RUN) -m tests.simulation.matrix $(if $(call on,$(PAIRS)),--pairs) $(if $(INTO),--into $(INTO))

mutants: $(DEVELOPING) ## prove: known-bad behaviours, planted one by one: which tests see each (ONLY=WORD, GENERATED=1)
	@$(RUN) -m tests.mutants $(if $(ONLY),--only "$(ONLY)") $(if $(call on,$(GENERATED)),--generated) \
	  $(if $(SEEDS),--seeds $(SEEDS))

attacks: $(DEVELOPING) binaries # what stolen credentials and tenants try, and what they reach (INTO=FILE)
	@$(RUN) -m pytest tests/security/attacks -m "real or not real" $(if $(INTO),--attacks-into $(INTO))

under-attack: $(DEVELOPING) # what each service holds while a tenant attacks (MINUTES=10 of each kind, ONLY="heads feeds", INTO=FILE)
	@$(RUN) -m devcluster.binaries control-plane
	@$(RUN) -m tests.security.resources $(ONLY) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(INTO),--into $(INTO))

input: $(DEVELOPING) # documents of each kind, from its definition and hostile ones, through the whole core (DOCUMENTS=10000)
	@MUSTER_DOCUMENTS=$(or $(DOCUMENTS),10000) $(RUN) -m pytest tests/input $(PARALLEL)

fuzz: $(DEVELOPING) $(ATHERIS)/.ready # coverage-guided fuzzing of all that reads bytes of others (SECONDS=60 each, ONLY=NAME, INTO=FILE)
	@PYTHONPATH=$(ATHERIS) $(RUN) -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(INTO),--into $(INTO))

perturb: $(DEVELOPING) # four services on a real API server, in each run one call in trouble (PLANS=n, MINUTES=n, PLAN='a line of a run', INTO=FILE)
	@$(RUN) -m devcluster.binaries control-plane bench
	@$(RUN) -m tests.perturbation $(if $(PLAN),--plan "$(PLAN)") $(if $(PLANS),--plans $(PLANS)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(INTO),--into $(INTO))

test-real: $(DEVELOPING) binaries ## check: the end-to-end tests and the contract suite on the real control plane (KUBERNETES=v1.37.2 for another version)
	@$(RUN) -m devcluster.binaries bench
	@$(if $(KUBERNETES),assets=$$($(RUN) -m devcluster.binaries --kubernetes $(KUBERNETES)) && export KUBEBUILDER_ASSETS=$$assets &&) \
	  $(RUN) -m pytest -m real $(PARALLEL)

test-node: $(DEVELOPING) ## check: the main stories on a real kubelet with containerd; skipped with the reason where not root
	@$(RUN) -m devcluster.binaries control-plane node
	@# Ports of its own, so that it may run beside the others.
	@MUSTER_PORTS=30001-32000 $(RUN) -m pytest -m node -rs

test-page: $(DEVELOPING) $(AXE)/.ready # `muster ui` in a real browser; skipped with the reason where none is
	@$(RUN) -m pytest -m page -rs

test-k3s: $(DEVELOPING) # the end-to-end tests on K3s in a container; skipped where no Docker engine runs
	@# The client of the Docker engine leaves a socket open when nobody answers it.
	@$(RUN) -m pytest -m k3s -rs -W 'ignore:unclosed <socket:ResourceWarning'

test-kueue: $(DEVELOPING) binaries # the real Kueue over our jobs, built once from its Go module (20 min on two cores)
	@$(RUN) -m devcluster.binaries queues
	@$(RUN) -m pytest -m kueue -rs

test-frameworks: $(DEVELOPING) # train with the real frameworks, each installed once; skipped with the reason where it cannot be had
	@$(RUN) -m tests.frameworks_real.environments
	@$(RUN) -m pytest tests/frameworks_real -m frameworks -rs

test-determinism: $(DEVELOPING) ## prove: fold every history that a test makes under eight hash seeds and three Pythons (HISTORIES=FOLDER of an earlier run)
	@$(if $(HISTORIES),,rm -rf .histories && MUSTER_HISTORIES=$(CURDIR)/.histories $(RUN) -m pytest $(PARALLEL))
	@$(RUN) -m tests.determinism $(or $(HISTORIES),.histories)

lint: $(DEVELOPING) ## check: style and layers
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/lint-imports

types: $(DEVELOPING) ## check: mypy, strict
	@$(VENV)/bin/mypy

fmt: $(DEVELOPING) ## check: format
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

bench: $(DEVELOPING) ## prove: speed and size on the real control plane, beside a bare client (QUICK=1, TURNS=3, FIGURES=start, PEER=ADAPTER, INTO=FILE)
	@$(RUN) -m devcluster.binaries control-plane bench
	@$(RUN) -m tests.bench.real $(FIGURES) $(if $(call on,$(QUICK)),--quick) $(if $(TURNS),--turns $(TURNS)) $(foreach peer,$(PEER),--peer $(peer)) $(if $(INTO),--into $(INTO))

ha: $(DEVELOPING) ## prove: kill and pause two replicas of each service and three NATS servers under load (KILLS=120, OVER=100000, SEED=0, QUICK=1, INTO=FILE)
	@$(RUN) -m devcluster.binaries control-plane bench
	@$(RUN) -m tests.ha $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(if $(call on,$(QUICK)),--quick) \
	  $(if $(OVER),--over $(OVER)) $(if $(INTO),--into $(INTO))

soak: $(DEVELOPING) # the same load with a strike each 30 s, and what the processes hold over time (HOURS=24 or MINUTES=30, SEED=0, INTO=FILE)
	@$(RUN) -m devcluster.binaries control-plane bench
	@$(RUN) -m tests.ha.soak $(if $(HOURS),"--hours=$(HOURS)") $(if $(MINUTES),"--minutes=$(MINUTES)") \
	  $(if $(SEED),"--seed=$(SEED)") $(if $(INTO),--into $(INTO))

bench-parts: $(DEVELOPING) # fold, append latency, watch event to decision: without a cluster
	@for file in tests/bench/[a-z]*.py; do $(RUN) -m tests.bench.$$(basename $$file .py) || exit 1; done

binaries: $(READY) # build the real control plane from Go modules, once
	@$(RUN) -m devcluster.binaries

control-plane: $(READY) binaries # the real control plane with one node, in the foreground until Ctrl-C
	@$(RUN) -m devcluster --real --data .devcluster/real $(foreach user,watcher scheduler scaler status,--user $(user)) \
	  --image muster-digits=examples/digits

crds: $(READY) # write crds/ from the models
	@$(RUN) -m muster.crds

rbac: $(DEVELOPING) # write deploy/rbac/ and the rules of the chart from the table of permissions
	@$(RUN) -m tests.deploy.chart_files

pages: $(DEVELOPING) ## make: write docs/schemas, docs/settings.md, docs/reasons.md, docs/pods.md, docs/permissions.md, docs/events.md and docs/pictures from the code
	@$(RUN) -m tests.docs.settings_page
	@$(RUN) -m tests.docs.reasons_page
	@$(RUN) -m tests.docs.pods_page
	@$(RUN) -m tests.docs.permissions_page
	@$(RUN) -m tests.docs.events_page
	@$(RUN) -m tests.docs.pictures
	@$(RUN) -m tests.docs.schemas

site: $(DEVELOPING) # the documentation as a site, from all pages, strictly (SITE=site), and packed for wheels and images
	@$(RUN) -m tests.docs.site $(or $(SITE),site) muster/page/docs.zip

chart: $(DEVELOPING) rbac # render the Helm chart anew: the Kustomize base and the golden files
	@$(RUN) -m devcluster.binaries deploy
	@$(RUN) -m tests.deploy.rendering
	@REWRITE_GOLDEN=1 $(RUN) -m pytest tests/deploy -k reviewed

replay: $(READY) ## try: fold a saved history, event by event: make replay LOG=file
	@$(VENV)/bin/muster replay $(LOG)

image: site ## make: build muster:VERSION with ENGINE=docker|podman|buildah (BASE=python:3.12-slim@sha256:... for the same one again)
	@test -n "$(ENGINE)" || { echo "an image takes docker, podman or buildah, and none is installed" >&2; exit 1; }
	@# The commit's time is that of all files: BuildKit finds it in the environment, the others take an option.
	@$(if $(DOCKER),SOURCE_DATE_EPOCH=$(EPOCH)) $(ENGINE) build -f Containerfile -t muster:$(VERSION) \
	  $(if $(DOCKER),,--timestamp $(EPOCH)) $(if $(BASE),--build-arg BASE=$(BASE)) \
	  --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD) .

wheels: site # build the wheels of Muster and of the development cluster, and the sources of Muster, into dist/
	@$(RUN) -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist . ./devcluster
	@$(RUN) -m hatchling build -t sdist -d dist

sbom: $(RELEASING)/.ready # list the image's packages with their hashes, as CycloneDX (INTO=FILE)
	@PYTHONPATH=$(RELEASING) $(RUN) -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --mc-type application \
	  --output-reproducible -o $(or $(INTO),muster-$(VERSION).cdx.json) deploy/image/requirements.lock

audit: $(RELEASING)/.ready # ask the package index for known vulnerabilities of the image's packages (needs its JSON API)
	@PYTHONPATH=$(RELEASING) $(RUN) -m pip_audit --strict --disable-pip --require-hashes --progress-spinner off \
	  -r deploy/image/requirements.lock

# SLSA 1.0: who builds this commit on this base has the same image.
provenance: based # of what an image is built, as SLSA has it (BASE=..., BUILDER=a URL of who builds it, PROVENANCE=FILE)
	@printf '{"buildDefinition": {"buildType": "https://muster.dev/image/v1", "externalParameters": {"BASE": "%s"},'\
	' "resolvedDependencies": [{"digest": {"gitCommit": "%s"}}, {"digest": {"sha256": "%s"}}]},'\
	' "runDetails": {"builder": {"id": "%s"}}}\n' '$(BASE)' "$$(git rev-parse HEAD)" '$(lastword $(subst sha256:, ,$(BASE)))' '$(BUILDER)' \
	  > $(or $(PROVENANCE),muster-$(VERSION).provenance.json)

release: based audit image sbom provenance # audit, image and what it is made of, on a base by its digest (BASE=python:3.12-slim@sha256:..., BUILDER=a URL, INTO=FILE of packages, PROVENANCE=FILE)

based:
	@echo '$(BASE)' | grep -qE '@sha256:[0-9a-f]{64}$$' || \
	  { echo "a release is built on a base that its digest names: make release BASE=python:3.12-slim@sha256:DIGEST" >&2; exit 1; }
	@test -n '$(BUILDER)' || { echo "a release names who builds it: make release BUILDER=https://example.com/who" >&2; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "a release is built of a commit, and files here differ from it: git status" >&2; exit 1; }

COMPILE := uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11

lock: # resolve the dependencies anew, with hashes and without addresses (needs uv)
	$(COMPILE) --extra demo --no-emit-package muster-devcluster --group install pyproject.toml -o requirements.lock > /dev/null
	$(COMPILE) -c requirements.lock --group dev -o requirements-dev.lock > /dev/null
	$(COMPILE) -c requirements.lock pyproject.toml -o deploy/image/requirements.lock > /dev/null
	$(COMPILE) -c requirements.lock --group image -o deploy/image/build.lock > /dev/null
	$(COMPILE) --group release -o deploy/image/release.lock > /dev/null

clean: # remove the virtual environments, recorded histories and caches
	rm -rf $(VENV) $(VENV)-3.* .histories .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Of pip's lines the names of packages are shown, each when its turn comes; a file's name has its version behind a dash.
define install
@{ $(RUN) -m pip install --disable-pip-version-check --no-input --progress-bar off --require-hashes -r $(1) \
    && touch $(VENV)/.installed; } | while read -r verb what more; do \
  case $$verb in \
    Collecting | Processing) what=$${what%%==*}; what=$${what##*/}; printf ' %s' "$${what%%-[0-9]*}" ;; \
    Installing) printf '\n     unpacking them\n' ;; \
  esac; done
@test -e $(VENV)/.installed || { echo "not installed: the next make begins again" >&2; exit 1; }
@rm $(VENV)/.installed
endef

# Beside the environment: wheels that fit few machines, a script for the page's tests, and tools about the image's packages.
$(ATHERIS)/.ready: tests/fuzz/requirements.txt
$(AXE)/.ready: tests/page/requirements.txt
$(RELEASING)/.ready: deploy/image/release.lock
$(ATHERIS)/.ready $(AXE)/.ready $(RELEASING)/.ready: $(READY)
	@$(RUN) -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --upgrade \
	  --target $(@D) -r $(filter-out $(READY),$^)
	@touch $@

# Without its mark an environment is half of one, left by an interruption: it is begun again from nothing.
$(READY): requirements.lock pyproject.toml devcluster/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Muster needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@echo "1/3  a virtual environment in $(VENV): some seconds"
	@test -e $(READY) || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(READY)
	@echo "2/3  what Muster runs with, $$(grep -c == requirements.lock) packages: under a minute, and longer on a slow line"
	$(call install,requirements.lock)
	@echo "3/3  Muster itself: some seconds"
	@$(RUN) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e ./devcluster -e .
	@touch $(READY)

$(DEVELOPING): requirements-dev.lock $(READY)
	@rm $(READY)
	@echo "and  what tests, lint and types take, $$(grep -c == requirements-dev.lock) packages: under a minute"
	$(call install,requirements-dev.lock)
	@touch $(READY) $(DEVELOPING)
