#!/usr/bin/env bash
# Runs a local cluster from start to end: starts the workers, shows their lines under their names,
# ends with the cluster's result as its own exit code, and leaves no container or network behind.
# stop.sh stops a cluster or one of its workers, resume.sh goes on with either.
#
# Environment: WORKERS=2 (1 to 8), NETWORK=bridge|host, RUN_NAME (a timestamp), IMAGE, RUNS_DIR,
# DATA_DIR, WORKSPACE_DIR, OVERLAYS (more compose files), GRACE_SECONDS=10, and every TRAINER_*.
# Exit code: 0 when all workers end with 0; else that of the worker that failed first;
# 78 for a mistake in the variables above; 130 or 143 when it, or all workers, were told to stop.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=compose/common.sh
. "$here/common.sh"

runs=${RUNS_DIR:-$here/../runs}
workers=${WORKERS:-2}
network=${NETWORK:-bridge}
image=${IMAGE:-cluster-trainer:cpu}
name=${RUN_NAME:-$(date +%Y%m%d-%H%M%S)}
grace=${GRACE_SECONDS:-10}
started=$(date +%s.%N)

export WORKERS=$workers NETWORK=$network IMAGE=$image RUN_NAME=$name GRACE_SECONDS=$grace UP_PID=$$
# Under sudo the results still belong to the person at the keyboard.
export RUN_UID=${RUN_UID:-${SUDO_UID:-$(id -u)}} RUN_GID=${RUN_GID:-${SUDO_GID:-$(id -g)}}

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
  [[ $network == bridge || $workers == [12] ]] ||
    end_with 78 "WORKERS: received \"$workers\"; accepted: 1 or 2, because NETWORK=host has two."
  [[ $grace =~ ^[0-9]+$ ]] ||
    end_with 78 "GRACE_SECONDS: received \"$grace\"; accepted: a whole number of seconds."
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && $name != latest ]] ||
    end_with 78 "RUN_NAME: received \"$name\"; accepted: letters, digits, dots, dashes and" \
      "underscores, not \"latest\"."
}

# A folder may be relative to where the command was typed; Compose would look beside its files.
# DATA_DIR without a slash may also name a volume.
find_folders() {
  local overlay found=()
  [[ -z ${WORKSPACE_DIR:-} ]] || WORKSPACE_DIR=$(folder WORKSPACE_DIR "$WORKSPACE_DIR")
  if [[ -d ${DATA_DIR:-} || ${DATA_DIR:-} == */* ]]; then DATA_DIR=$(folder DATA_DIR "$DATA_DIR"); fi
  for overlay in ${OVERLAYS:-}; do
    found+=("$(realpath --canonicalize-existing --quiet "$overlay")") ||
      end_with 78 "OVERLAYS: received \"$overlay\"; accepted: compose files that are there."
  done
  export DATA_DIR=${DATA_DIR:-} WORKSPACE_DIR=${WORKSPACE_DIR:-} OVERLAYS="${found[*]}"
}

check_engine() {
  docker image inspect "$image" >/dev/null 2>&1 ||
    end_with 1 "there is no image $image here; \`make build\` builds it."
  [[ -z $(containers --quiet --filter status=running --filter status=paused) ]] ||
    end_with 1 "a cluster of the project $COMPOSE_PROJECT_NAME runs already: \`make ps\` shows it," \
      "\`make down\` ends it."
}

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
  LOCALHOST_WORKERS=$(seq -f 'localhost:%g' 20000 $((19999 + workers)) | paste -sd, -)
  export COMPOSE_PROFILES WORKER_HOSTS LOCALHOST_WORKERS
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
    : >>"$runs/$name/$service/container.log"
  done
  runs=$(cd "$runs" && pwd)
  folder=$runs/$name
  export RUNS_DIR=$runs
  ln -sfn "$name" "$runs/latest"
  remember
  if [[ $(id -u) == 0 ]]; then chown -hR "$RUN_UID:$RUN_GID" "$folder" "$runs/latest"; fi
}

# What resume.sh needs. TRAINER_RESUME is about one start; of a secret it keeps that there is one.
remember() {
  local variable
  before=$(cat "$folder/$settings_file" 2>/dev/null) || true
  {
    echo "# What this run was started with; \`make resume\` takes it from here."
    for variable in $(compgen -e | sort); do
      if [[ $variable =~ $settings && $variable != TRAINER_RESUME && -n ${!variable} ]]; then
        echo "$variable=${!variable}"
      fi
    done
    if [[ -n ${CLUSTER_TOKEN:-} ]]; then echo "CLUSTER_TOKEN="; fi
  } >"$folder/$settings_file"
}

# Settings that the workers refuse are not what the run goes on with.
forget() { [[ -z $before ]] || echo "$before" >"$folder/$settings_file"; }

# ---- the run -----------------------------------------------------------------------------------

start() {
  say "$workers worker(s) of $image, run $name"
  exec 3< <(events) # opened first, so that nothing is missed
  events=$!
  compose up --detach --remove-orphans --force-recreate
}

# One line an event, in the engine's order: start, kill (a signal was sent) or die; the worker; its
# exit code; the signal; the container; the time.
events() {
  local line='{{.Action}} {{index .Actor.Attributes "com.docker.compose.service"}}'
  line+=' {{or .Actor.Attributes.exitCode "-"}} {{or .Actor.Attributes.signal "-"}}'
  line+=' {{.Actor.ID}} {{.TimeNano}}'
  exec docker events --since "$started" --filter=event={start,kill,die} --format "$line" \
    --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME"
}

# TensorFlow's C++ notes (level I) cannot be switched off before it is up, and tell a person nothing;
# nor does its warning about the iterator that tf.distribute itself makes. They are left out on the
# screen alone: container.log holds every line. The worker's name stands once, before the line.
notes='^I[0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.cc:[0-9]+\]'
notes+='|^WARNING: All log messages before absl::Init|Input of GeneratorDatasetOp'

show_lines() { # SERVICE CONTAINER SINCE
  docker logs --follow --since "$3" "$2" 2>&1 |
    tee --append "$folder/$1/container.log" |
    sed -u -E -e "/$notes/d" -e "s/^([0-9:]{8} [A-Z]+) $1 /\\1 /" -e "s/^/$1 | /"
}

# Ends when no worker runs, or when the first one has failed: TensorFlow would wait for its peers
# for an hour. A worker that was asked to stop may come back.
wait_for_workers() {
  local event service code signal id time running=$workers
  while ((running > 0)); do
    read -r event service code signal id time <&3 ||
      end_with 1 "the engine's events ended before the workers did."
    case $event in
      start) on_start "$service" "$id" ;;
      kill) if [[ $signal == 15 ]]; then asked[$service]=yes; fi ;;
      die) on_die "$service" "$code" "$id" "$time" ;;
    esac
  done
  [[ " ${codes[*]} " != *" 143 "* ]] || exit 143
}

on_start() { # SERVICE CONTAINER
  if [[ -n ${codes[$1]:-} ]]; then
    say "$1 is started again"
    running=$((running + 1))
    wait "${followers[$1]}" || true
  fi
  codes[$1]="" asked[$1]=""
  apart show_lines "$1" "$2" "${ended[$1]:-0}"
  followers[$1]=$!
}

on_die() { # SERVICE CODE CONTAINER TIME
  running=$((running - 1))
  # The engine says so when it has all of a container's lines: those of a later start come after it.
  codes[$1]=$2 ended[$1]=${4::-9}.${4: -9}
  case $2 in
    0) ;;
    143) say_who_waits "$1" ;;
    *) fail "$1" "$2" "$3" ;;
  esac
}

# Nobody waits where all were asked, as `make stop` does.
say_who_waits() { # SERVICE
  local other
  for other in $(services); do
    if [[ -z ${codes[$other]:-}${asked[$other]:-} ]]; then
      say "$1 was asked to stop; the others wait for it: \`make resume WORKER=${1#worker-}\`"
      return
    fi
  done
}

told_to_stop() { end_with "$1" "stopping: the workers get $grace s to end."; }

fail() { # SERVICE CODE CONTAINER
  local first=" first" others=""
  if [[ " ${codes[*]} " == *" 143 "* ]]; then first=""; fi
  if ((workers > 1)); then others="; stopping the others"; fi
  end_with "$2" "$1 ended$first, with exit code $2 ($(meaning "$2" "$3"))$others."
}

meaning() { # CODE CONTAINER
  case $1 in
    75) echo "it lost a peer" ;;
    78) echo "bad configuration" ;;
    137) if [[ $(docker inspect -f '{{.State.OOMKilled}}' "$2") == true ]]; then
      echo "out of memory"
    else echo "killed"; fi ;;
    *) echo "an error of its own" ;;
  esac
}

# ---- the end -----------------------------------------------------------------------------------

finish() {
  local code=$?
  trap '' INT TERM HUP
  trap - EXIT
  if ((code == 78)); then forget; fi
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
  echo
  if (($1 == 0)); then
    say "done: $workers worker(s), $(($(date +%s) - ${started%.*})) s"
    show_metrics "$folder/worker-0/metrics.jsonl"
    printf '  %-20s %s\n' model "$folder/worker-0/model.keras and saved_model/"
  else
    say_how_to_go_on "$1"
  fi
  printf '  %-20s %s\n' metrics "$folder/worker-<i>/metrics.jsonl, result.json" \
    logs "$folder/worker-<i>/train.log, container.log"
}

say_how_to_go_on() { # CODE
  local what="failed with exit code $1" file how="begins at step 0: there is no checkpoint yet"
  file=$(newest_checkpoint "$folder" "$workers")
  if [[ -n $file ]]; then file=${file##*/} how="goes on from step $((10#${file%%-*}))"; fi
  case $1 in
    129 | 130 | 143) say "stopped; \`make resume\` $how" ;;
    78) say "$what" ;;
    *) say "$what${file:+; \`make resume\` $how}" ;;
  esac
}

# The last epoch, one "name value" a line: metrics.jsonl holds one flat object a line.
show_metrics() { # FILE
  [[ -s $1 ]] || return 0
  tail -n 1 "$1" | tr -d '{}" ' | tr ',' '\n' | sed 's/:/ /' |
    awk '{printf "  %-20s " ($2 ~ /\./ ? "%.4f" : "%s") "\n", $1, $2}'
}

main() {
  # By worker: the process that shows its lines, its last exit code (empty: it runs), whether it was
  # asked to stop, when it ended.
  declare -gA followers=() codes=() asked=() ended=()
  events=""
  check_settings
  find_folders
  check_engine
  choose_files
  make_folders
  name_workers
  share_cores
  trap finish EXIT
  trap 'told_to_stop 129' HUP
  trap 'told_to_stop 130' INT
  trap 'told_to_stop 143' TERM
  start
  wait_for_workers
}

main
