# `make` alone lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help known engine build build-cpu build-gpu build-cpu-r build-gpu-r build-jax build-jax-gpu image up up-local attach fetch replace stop resume down logs ps status data data-sample tensorboard report test unit inside keras-tests chaos soak mutants reference lint bench tutorial-table lock sbom push clean

export IMAGE ?= $(or $(shell sed -n "s/^[[:blank:]]*\(export[[:blank:]]*\)*IMAGE[[:blank:]]*=[[:blank:]]*[\"']*\([^\"' ]*\).*/\2/p" .env 2>/dev/null | tail -n 1),cluster-trainer:cpu)
CLUSTER := $(or $(PYTHON),python3) compose/cluster.py

# EPOCHS= is TRAINER_EPOCHS, and so on for all names in compose/settings.env. Only those that are set are exported.
SETTINGS := $(shell sed -n 's/^TRAINER_//p' compose/settings.env)
forward = $(if $($1),$(eval export TRAINER_$2 = $$($1)))
$(foreach name,$(SETTINGS),$(call forward,$(name),$(name)))
$(call forward,BATCH,PER_REPLICA_BATCH_SIZE)
$(call forward,GLOBAL_BATCH,GLOBAL_BATCH_SIZE)
ifeq ($(origin NAME),command line) # some shells set a NAME themselves
export RUN_NAME = $(NAME)
endif
ifeq ($(origin PORT),command line) # and other programs a PORT
export TENSORBOARD_PORT = $(PORT)
endif

# PLATFORM counts on make's command line only. In the environment it may be another program's.
platform = $(if $(filter command,$(firstword $(origin PLATFORM))),$(PLATFORM))

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

engine: ## Check for Docker, Compose 2.24 and buildx; install what is missing (Debian or Ubuntu, as root)
	@scripts/engine.sh

build: engine ## Build the image for this machine: GPU where Docker has an NVIDIA runtime, else CPU
	@if docker info --format '{{json .Runtimes}}' | grep -q '"nvidia"'; then scripts/build.sh gpu; else scripts/build.sh cpu; fi

build-cpu: engine ## Build cluster-trainer:cpu. PLATFORM=linux/arm64 builds cluster-trainer:cpu-arm64, with an emulator
	@scripts/build.sh cpu $(platform)

build-gpu: engine ## Build cluster-trainer:gpu
	@scripts/build.sh gpu

build-cpu-r: engine ## Build cluster-trainer:cpu-r, the same image with R
	@scripts/build.sh cpu-r $(platform)

build-gpu-r: engine ## Build cluster-trainer:gpu-r
	@scripts/build.sh gpu-r

build-jax: engine ## Build cluster-trainer:jax-cpu, the same image with Keras on JAX instead of TensorFlow
	@scripts/build.sh jax-cpu $(platform)

build-jax-gpu: engine ## Build cluster-trainer:jax-gpu, the same for GPUs (never run on one)
	@scripts/build.sh jax-gpu

# Your own image is used as it is. If everything is in the cache, a build takes 0.3 s.
image: engine
	@case '$(IMAGE)' in cluster-trainer:[cg]pu|cluster-trainer:[cg]pu-r) scripts/build.sh '$(IMAGE:cluster-trainer:%=%)' ;; esac

# An unknown name on make's command line is refused before anything is built or stopped.
given = $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),'$(name)'))
known:
	@$(CLUSTER) names $(MAKECMDGOALS) --given $(given)

up: known image ## Train on several machines by SSH. HOSTS="ana@10.0.0.1 ana@10.0.0.2 gpus=0,1" NAME= EPOCHS= SCRIPT=my/train.py IMAGE= …
	@$(CLUSTER) up

attach: known ## Show the cluster on several machines again; Ctrl-C leaves it running
	@$(CLUSTER) attach

fetch: known ## Copy the results from several machines into runs/
	@$(CLUSTER) fetch

# By the environment, so that the shell does not read them. Some shells have a HOST of their own.
replace: export LEAVING_HOST = $(if $(filter command,$(firstword $(origin HOST))),$(HOST))
replace: export COMING_HOST = $(WITH)
replace: known engine ## Give a worker another machine. HOST=ana@10.0.0.2 WITH="ana@10.0.0.9 gpus=0"
	@IMAGE='$(if $(filter file,$(origin IMAGE)),,$(IMAGE))' $(CLUSTER) replace "$$LEAVING_HOST" "$$COMING_HOST"

up-local: known image ## Train on this machine. WORKERS=2 NAME= DATASET= MODEL= EPOCHS= BATCH= SCRIPT=my/train.py NETWORK=bridge|host IMAGE= …
	@HOSTS= $(CLUSTER) up

stop: known ## Stop the cluster at a checkpoint; WORKER=1: that worker alone, and the others wait for it
	@$(CLUSTER) stop $(WORKER)

# IMAGE's default is not the run's own image.
resume: known engine ## Resume the newest run with its settings, or the run NAME=; WORKER=1: that worker alone
	@IMAGE='$(if $(filter file,$(origin IMAGE)),,$(IMAGE))' $(CLUSTER) resume $(WORKER)

down: known ## Stop and remove the cluster
	@$(CLUSTER) down

logs: known ## Follow the cluster's logs
	@$(CLUSTER) logs

ps: known ## Show the cluster's containers
	@$(CLUSTER) ps

status: known ## Show what each worker of the cluster is doing. JSON=1
	@$(CLUSTER) status $(if $(JSON),--json)

data: known image ## Prepare a data set for all runs on this machine. DATASET=tf_flowers DATA_DIR=
	@$(CLUSTER) data prepare '$(DATASET)'

data-sample: known image ## Make small samples of cats_vs_dogs and tf_flowers, without a download. DATASET= SAMPLE_PICTURES=600
	@scripts/build.sh pictures
	@$(CLUSTER) data sample $(or $(DATASET),cats_vs_dogs tf_flowers)

tensorboard: known image ## Show the curves of all runs in a browser, also while they run; Ctrl-C ends it. PORT=6006
	@$(CLUSTER) tensorboard

report: known image ## Write a page about the newest run: curves, timeline, predictions. NAME='first second' shows both
	@scripts/build.sh report
	@$(CLUSTER) report

test: image .venv/stamp ## Run all tests but the long ones. TESTS=tests/unit PYTEST_ARGS='-k name'
	@TESTS='$(TESTS)' scripts/test.sh $(PYTEST_ARGS)

unit: .venv/stamp ## Run the quick tests that need no Docker, in about half a minute
	@scripts/unit.sh --numprocesses 3 -m 'not long and not slow' $(PYTEST_ARGS)

inside: image .venv/stamp ## Run the tests inside the image. TESTS=tests/inside/test_run.py PYTEST_ARGS='-k name'
	@scripts/inside.sh $(or $(TESTS),tests/inside) $(PYTEST_ARGS)

keras-tests: image .venv/stamp ## Run Keras's own tests against Keras as published, patched, and with the engine
	@.venv/bin/python scripts/keras_tests.py $(PYTEST_ARGS)

chaos: image .venv/stamp ## Run the long tests: kill workers in every way, write the table of docs/explanation/survival.md, try more examples. PARTS='timed inside'
	@PARTS='$(PARTS)' scripts/chaos.sh $(PYTEST_ARGS)

soak: image .venv/stamp ## Kill, freeze and cut off workers at random, for MINUTES=20 without and with MIN_WORKERS
	@.venv/bin/python -m pytest tests/cluster/soak.py --soak-minutes=$(or $(MINUTES),20) --chaos-table=docs/explanation/survival.md $(PYTEST_ARGS)

mutants: image .venv/stamp ## Make COUNT=100 small changes to the last commit's code, and list those that no test catches. SEED=1 MINUTES=60
	@.venv/bin/python -m scripts.mutants --count $(or $(COUNT),100) --seed $(or $(SEED),1) $(if $(MINUTES),--minutes $(MINUTES))

reference: .venv/stamp ## Write the tables of docs/ that are generated from the code
	@.venv/bin/python scripts/reference.py

lint: .venv/stamp ## Check style, types, the Dockerfile, the scripts, GitHub's files
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy entrypoint trainer/cluster_trainer trainer/cluster_trainer_start.py
	.venv/bin/mypy --python-version 3.10 compose # the oldest version that mypy knows; a test covers 3.9
	.venv/bin/hadolint Dockerfile benchmarks/torch/Dockerfile
	.venv/bin/mypy scripts/keras_tests.py scripts/reference.py scripts/sbom.py scripts/terminal_picture.py
	.venv/bin/mypy --package scripts.mutants
	MYPYPATH=trainer:tests:tests/inside .venv/bin/mypy --config-file= --ignore-missing-imports \
		--explicit-package-bases --disable-error-code=var-annotated --disable-error-code=assignment \
		--disable-error-code=call-arg tests/inside # mostly for names that have moved
	.venv/bin/shellcheck scripts/*.sh .ci/run compose/machines/for_docker/ssh
	@scripts/forms.sh

bench: image .venv/stamp ## Run the benchmarks
	@.venv/bin/python -m benchmarks

tutorial-table: image build-cpu-r .venv/stamp ## Measure the tutorials' trainings, on one worker and on several. DATA_DIR= IMAGE_SIZE=96 ROWS='on 2 workers' ROUNDS=3
	@scripts/build.sh pictures
	@.venv/bin/python -m benchmarks.tutorial_table

lock: .venv/stamp ## Update the locks in requirements/. LOCK_ARGS=--upgrade takes the newest versions, --check only checks that all platforms have them
	@scripts/lock.sh $(LOCK_ARGS)

sbom: image .venv/stamp ## Write the image's packages to .build/, as a CycloneDX document. IMAGE=cluster-trainer:gpu
	@scripts/sbom.sh

push: ## Push the image. REGISTRY=ghcr.io/name IMAGE=cluster-trainer:gpu
	@scripts/push.sh '$(IMAGE:cluster-trainer:%=%)'

clean: ## Remove the files that make has created in this folder, but not runs/ and images
	rm -rf .venv .build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/stamp: requirements/dev.txt
	@scripts/venv.sh
