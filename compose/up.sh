#!/usr/bin/env bash
# Runs a local cluster from start to end: starts the workers, shows their lines under their names,
# ends with the cluster's result as its own exit code, and leaves no container or network behind.
#
# Environment: WORKERS=2 (1 to 8), NETWORK=bridge|host, RUN_NAME (a timestamp), IMAGE, RUNS_DIR,
# DATA_DIR, WORKSPACE_DIR, OVERLAYS (more compose files), GRACE_SECONDS=10, and every TRAINER_*.
# Exit code: 0 when all workers end with 0; else that of the worker that failed first;
# 78 for a mistake in the variables above; 130 or 143 when it was told to stop.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runs=${RUNS_DIR:-$here/../runs}
workers=${WORKERS:-2}
network=${NETWORK:-bridge}
image=${IMAGE:-cluster-trainer:cpu}
name=${RUN_NAME:-$(date +%Y%m%d-%H%M%S)}
grace=${GRACE_SECONDS:-10}
started=$(date +%s.%N)

export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-cluster-trainer}
export IMAGE=$image RUN_NAME=$name
# Under sudo the results still belong to the person at the keyboard.
export RUN_UID=${RUN_UID:-${SUDO_UID:-$(id -u)}} RUN_GID=${RUN_GID:-${SUDO_GID:-$(id -g)}}

say() { printf 'cluster-trainer: %s\n' "$1"; }

end_with() { # CODE SENTENCE...
  say "${*:2}" >&2
  exit "$1"
}

compose() { docker compose --progress quiet "${files[@]}" "$@"; }

# Runs a command where a terminal's Ctrl-C does not reach it: in a process group of its own.
apart() {
  set -m
  "$@" &
  set +m
}

services() { seq -f 'worker-%g' 0 $((workers - 1)); }

# ---- before the start: check, and say what is wrong in one sentence --------------------------

check_settings() {
  [[ $workers == [1-8] ]] ||
    end_with 78 "WORKERS: received \"$workers\"; accepted: a number from 1 to 8."
  [[ $network == bridge || $network == host ]] ||
    end_with 78 "NETWORK: received \"$network\"; accepted: bridge or host."
  [[ $network == bridge || $workers == 2 ]] ||
    end_with 78 "WORKERS: received \"$workers\"; accepted: 2, because NETWORK=host has two workers."
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && $name != latest ]] ||
    end_with 78 "RUN_NAME: received \"$name\"; accepted: letters, digits, dots, dashes and" \
      "underscores, not \"latest\"."
}

# A folder may be relative to where the command was typed; Compose would look beside its files.
# DATA_DIR without a slash may also name a volume.
find_folders() {
  [[ -z ${WORKSPACE_DIR:-} ]] || WORKSPACE_DIR=$(folder WORKSPACE_DIR "$WORKSPACE_DIR")
  if [[ -d ${DATA_DIR:-} || ${DATA_DIR:-} == */* ]]; then DATA_DIR=$(folder DATA_DIR "$DATA_DIR"); fi
  export DATA_DIR=${DATA_DIR:-} WORKSPACE_DIR=${WORKSPACE_DIR:-}
}

folder() { # VARIABLE PATH
  [[ -d $2 ]] || end_with 78 "$1: received \"$2\"; accepted: a folder that is there."
  cd "$2" && pwd
}

check_engine() {
  docker image inspect "$image" >/dev/null 2>&1 ||
    end_with 1 "there is no image $image here; \`make build\` builds it."
  [[ -z $(containers --filter status=running --filter status=paused) ]] ||
    end_with 1 "a cluster of the project $COMPOSE_PROJECT_NAME runs already: \`make ps\` shows it," \
      "\`make down\` ends it."
}

containers() { docker ps --all --quiet --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" "$@"; }

# ---- what the compose files take ---------------------------------------------------------------

choose_files() {
  local overlay
  files=(--file "$here/local.yaml")
  [[ $network == bridge ]] || files=(--file "$here/host-network.yaml")
  if gpus_here; then files+=(--file "$here/gpu.yaml"); fi
  for overlay in ${OVERLAYS:-}; do files+=(--file "$overlay"); done
}

gpus_here() {
  [[ $image == *gpu* ]] && docker info --format '{{json .Runtimes}}' | grep -q '"nvidia"'
}

name_workers() {
  COMPOSE_PROFILES=$(services | paste -sd, -)
  WORKER_HOSTS=$(services | sed 's/$/:2222/' | paste -sd, -)
  export COMPOSE_PROFILES WORKER_HOSTS
  # One worker may use every GPU; of several, each gets its own (gpu.yaml).
  if ((workers == 1)); then export WORKER_0_GPUS=${WORKER_0_GPUS:-all}; fi
}

# Workers whose thread pools fight for the same cores lose more time than the network costs.
share_cores() {
  local threads=$(($(getconf _NPROCESSORS_ONLN) / workers))
  export TRAINER_THREADS=${TRAINER_THREADS:-$((threads > 0 ? threads : 1))}
}

# Made here and not by the engine, which would make them for root.
make_folders() {
  local service
  for service in $(services); do
    mkdir -p "$runs/$name/$service"
    : >"$runs/$name/$service/container.log"
  done
  runs=$(cd "$runs" && pwd)
  export RUNS_DIR=$runs
  ln -sfn "$name" "$runs/latest"
  if [[ $(id -u) == 0 ]]; then chown -hR "$RUN_UID:$RUN_GID" "$runs/$name" "$runs/latest"; fi
}

# ---- the run -----------------------------------------------------------------------------------

start() {
  say "$workers worker(s) of $image, run $name"
  exec 3< <(ends) # opened first, so that no worker's end is missed
  events=$!
  compose up --detach --remove-orphans
}

# One line a worker that ended, in the engine's order: SERVICE CODE CONTAINER.
ends() {
  exec docker events --since "$started" --filter event=die \
    --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --format \
    '{{index .Actor.Attributes "com.docker.compose.service"}} {{.Actor.Attributes.exitCode}} {{.ID}}'
}

follow() {
  local service
  for service in $(services); do
    apart show_lines "$service"
    followers+=($!)
  done
}

# TensorFlow's C++ notes (level I) cannot be switched off before it is up, and tell a person nothing;
# nor does its warning about the iterator that tf.distribute itself makes. They are left out on the
# screen alone: container.log holds every line. The worker's name stands once, before the line.
notes='^I[0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.cc:[0-9]+\]'
notes+='|^WARNING: All log messages before absl::Init|Input of GeneratorDatasetOp'

show_lines() { # SERVICE
  docker logs --follow "$(compose ps --all --quiet "$1")" 2>&1 |
    tee "$runs/$name/$1/container.log" |
    sed -u -E -e "/$notes/d" -e "s/^([0-9:]{8} [A-Z]+) $1 /\\1 /" -e "s/^/$1 | /"
}

# Ends when every worker is done or the first one has failed: TensorFlow would wait for its
# peers for an hour.
wait_for_workers() {
  local left=$workers service code id
  while ((left > 0)); do
    read -r service code id <&3 || end_with 1 "the engine's events ended before the workers did."
    left=$((left - 1))
    if ((code != 0)); then fail "$service" "$code" "$id"; fi
  done
}

told_to_stop() { end_with "$1" "stopping: the workers get $grace s to end."; }

fail() { # SERVICE CODE CONTAINER
  local others=""
  if ((workers > 1)); then others="; stopping the others"; fi
  end_with "$2" "$1 ended first, with exit code $2 ($(meaning "$2" "$3"))$others."
}

meaning() { # CODE CONTAINER
  case $1 in
    75) echo "it lost a peer" ;;
    78) echo "bad configuration" ;;
    137) if [[ $(docker inspect -f '{{.State.OOMKilled}}' "$2") == true ]]; then
      echo "out of memory"
    else echo "killed"; fi ;;
    143) echo "asked to stop" ;;
    *) echo "an error of its own" ;;
  esac
}

# ---- the end -----------------------------------------------------------------------------------

finish() {
  local code=$?
  trap '' INT TERM HUP
  trap - EXIT
  remove_cluster || say "the engine could not remove everything; \`make down\` tries again." >&2
  report "$code"
  exit "$code"
}

# The followers end by themselves when their container has, with its last line shown and saved.
remove_cluster() {
  apart compose stop --timeout "$grace"
  wait $!
  if ((${#followers[@]})); then wait "${followers[@]}" || true; fi
  kill "$events" 2>/dev/null || true
  apart compose down --remove-orphans --timeout "$grace"
  wait $!
}

report() { # CODE
  local folder=$runs/$name
  echo
  if (($1 == 0)); then
    say "done: $workers worker(s), $(($(date +%s) - ${started%.*})) s"
    show_metrics "$folder/worker-0/metrics.jsonl"
    printf '  %-20s %s\n' model "$folder/worker-0/model.keras and saved_model/"
  else
    say "failed with exit code $1"
  fi
  printf '  %-20s %s\n' metrics "$folder/worker-<i>/metrics.jsonl, result.json" \
    logs "$folder/worker-<i>/train.log, container.log"
}

# The last epoch, one "name value" a line: metrics.jsonl holds one flat object a line.
show_metrics() { # FILE
  [[ -s $1 ]] || return 0
  tail -n 1 "$1" | tr -d '{}" ' | tr ',' '\n' | sed 's/:/ /' |
    awk '{printf "  %-20s " ($2 ~ /\./ ? "%.4f" : "%s") "\n", $1, $2}'
}

main() {
  followers=()
  events=""
  check_settings
  find_folders
  check_engine
  choose_files
  name_workers
  share_cores
  make_folders
  trap finish EXIT
  trap 'told_to_stop 129' HUP
  trap 'told_to_stop 130' INT
  trap 'told_to_stop 143' TERM
  start
  follow
  wait_for_workers
}

main
