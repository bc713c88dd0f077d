# `make` alone says what there is.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help engine build build-cpu build-gpu image up-local down logs ps test lint bench tensorboard lock clean

export IMAGE ?= cluster-trainer:cpu
TESTS ?= tests/unit tests/image tests/cluster
COMPOSE := docker compose --project-name cluster-trainer

# What `make up-local` takes, as the variables behind it; only those that are given are exported.
forward = $(if $($1),$(eval export $2 = $$($1)))
$(call forward,DATASET,TRAINER_DATASET)
$(call forward,MODEL,TRAINER_MODEL)
$(call forward,EPOCHS,TRAINER_EPOCHS)
$(call forward,STEPS_PER_EPOCH,TRAINER_STEPS_PER_EPOCH)
$(call forward,BATCH,TRAINER_PER_REPLICA_BATCH_SIZE)
$(call forward,GLOBAL_BATCH,TRAINER_GLOBAL_BATCH_SIZE)
$(call forward,LEARNING_RATE,TRAINER_LEARNING_RATE)
$(call forward,IMAGE_SIZE,TRAINER_IMAGE_SIZE)
$(call forward,LEARNING_RATE_SCHEDULE,TRAINER_LEARNING_RATE_SCHEDULE)
$(call forward,OPTIMIZER,TRAINER_OPTIMIZER)
$(call forward,SEED,TRAINER_SEED)
$(call forward,STRATEGY,TRAINER_STRATEGY)
ifeq ($(origin NAME),command line) # some shells have a NAME of their own
export RUN_NAME = $(NAME)
endif

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

engine: ## Check for Docker, Compose v2 and buildx; install what is missing (Debian or Ubuntu, as root)
	@scripts/engine.sh

build: engine ## Build the image for this machine: GPU where Docker has an NVIDIA runtime, else CPU
	@if docker info --format '{{json .Runtimes}}' | grep -q '"nvidia"'; then scripts/build.sh gpu; else scripts/build.sh cpu; fi

build-cpu: engine ## Build cluster-trainer:cpu
	@scripts/build.sh cpu

build-gpu: engine ## Build cluster-trainer:gpu
	@scripts/build.sh gpu

# An image of the user's own is taken as it is. With everything in the cache a build takes 0.3 s.
image: engine
	@case '$(IMAGE)' in cluster-trainer:cpu) scripts/build.sh cpu ;; cluster-trainer:gpu) scripts/build.sh gpu ;; esac

up-local: image ## Train on this machine. WORKERS=2 NAME= DATASET= MODEL= EPOCHS= BATCH= NETWORK=bridge|host IMAGE= …
	@compose/up.sh

down: ## Stop and remove the local cluster
	@$(COMPOSE) down --remove-orphans

logs: ## Follow the local cluster's lines
	@$(COMPOSE) logs --follow

ps: ## Show the local cluster's containers
	@$(COMPOSE) ps --all

test: image .venv/stamp ## Run the tests. TESTS=tests/unit PYTEST_ARGS='-k name'
	@.venv/bin/python -m pytest $(TESTS) $(PYTEST_ARGS)

lint: .venv/stamp ## Check style, types, the Dockerfile and the scripts
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy entrypoint trainer
	.venv/bin/hadolint Dockerfile
	.venv/bin/shellcheck scripts/*.sh compose/*.sh .ci/run

bench: image .venv/stamp ## Run the benchmarks
	@.venv/bin/python -m benchmarks

tensorboard: image ## Show the runs on http://localhost:6006
	@docker compose --file compose/tensorboard.yaml up

lock: .venv/stamp ## Make the locks in requirements/ anew
	@scripts/lock.sh

clean: ## Remove what make left in this folder (not runs/, not images)
	rm -rf .venv .build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/stamp: requirements/dev.txt
	@scripts/venv.sh
