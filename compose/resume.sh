#!/usr/bin/env bash
# Goes on where a local cluster stopped: resume.sh with a run, by up.sh; resume.sh 1 with worker-1
# of the cluster that runs.
#
# A run goes on with what it was started with; what is set here wins. Its global batch stays the
# same with another number of workers.
#
# Environment: RUN_NAME (runs/latest), RUNS_DIR, COMPOSE_PROJECT_NAME, and all that up.sh takes.
# Exit code: up.sh's; for one worker 0; 78 when there is no such run or worker.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=compose/common.sh
. "$here/common.sh"

runs=${RUNS_DIR:-$here/../runs}
declare -A was

# ---- one worker --------------------------------------------------------------------------------

start_again() { # INDEX
  local service=worker-$1 ended
  ended=$(services_of --filter status=exited)
  [[ -n $ended ]] ||
    end_with 78 "WORKER: received \"$1\", and no cluster here has a worker that ended;" \
      "\`make resume\` without it goes on with a run."
  [[ " $ended " == *" $service "* ]] ||
    end_with 78 "WORKER: received \"$1\"; accepted: the number of one that ended:" \
      "$(numbers "$ended")."
  docker start "$(container_of "$service")" >/dev/null
  say "$service is started again"
}

# ---- a run -------------------------------------------------------------------------------------

find_run() {
  if [[ ${RUN_NAME:-latest} == latest ]]; then
    RUN_NAME=$(readlink "$runs/latest") ||
      end_with 78 "there is no run to go on with in $runs; \`make up-local\` starts one."
  fi
  export RUN_NAME
  [[ -f $runs/$RUN_NAME/$settings_file ]] ||
    end_with 78 "RUN_NAME: received \"$RUN_NAME\"; accepted: a run that \`make up-local\` started" \
      "(there is no $runs/$RUN_NAME/$settings_file)."
}

# Read and not sourced: the workers can write there, too.
read_settings() {
  local file=$runs/$RUN_NAME/$settings_file lines line
  mapfile -t lines <"$file"
  for line in "${lines[@]}"; do
    if [[ $line =~ ^([A-Z0-9_]+)=(.*)$ ]]; then was[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}; fi
  done
  [[ ${was[WORKERS]:-} == [1-8] ]] ||
    end_with 78 "WORKERS in $file: received \"${was[WORKERS]:-}\"; accepted: a number from 1 to 8."
  [[ ! -v was[CLUSTER_TOKEN] || -n ${CLUSTER_TOKEN:-} ]] ||
    end_with 78 "CLUSTER_TOKEN: not given, and the run was started with one, which is in no file;" \
      "give it again, or another."
}

# The examples for each replica depend on how many there are; all of them together may not change.
keep_global_batch() {
  local file batch=""
  if [[ -n ${TRAINER_GLOBAL_BATCH_SIZE:-}${TRAINER_PER_REPLICA_BATCH_SIZE:-} ]]; then
    unset "was[TRAINER_GLOBAL_BATCH_SIZE]" "was[TRAINER_PER_REPLICA_BATCH_SIZE]"
    return
  fi
  file=$(newest_checkpoint "$runs/$RUN_NAME" "${was[WORKERS]}")
  [[ -z $file ]] || batch=$(global_batch "$file")
  if [[ -n $batch ]]; then
    unset "was[TRAINER_PER_REPLICA_BATCH_SIZE]"
    was[TRAINER_GLOBAL_BATCH_SIZE]=$batch
  fi
}

# A checkpoint begins with what it says about itself, as JSON that is not compressed.
global_batch() { # FILE
  grep --text --only-matching --max-count 1 --extended-regexp \
    '"TRAINER_GLOBAL_BATCH_SIZE": "[0-9]+"' "$1" | grep --only-matching '[0-9]*' | head -n 1
}

take_settings() {
  local name
  for name in "${!was[@]}"; do
    if [[ $name =~ $settings && -z ${!name:-} ]]; then export "$name=${was[$name]}"; fi
  done
}

main() {
  if (($#)); then
    start_again "$1"
    return
  fi
  find_run
  read_settings
  keep_global_batch
  take_settings
  exec "$here/up.sh"
}

main "$@"
