#!/usr/bin/env bash
# Asks a local cluster to stop: stop.sh for all of its workers, stop.sh 1 for worker-1 alone.
# They agree on a step, save a checkpoint of it and end with 143; resume.sh goes on from there.
#
# Environment: COMPOSE_PROJECT_NAME=cluster-trainer.
# Exit code: 0 when they have ended; 78 for a mistake in the number; 1 when none runs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=compose/common.sh
. "$here/common.sh"

END_SECONDS=30

stop_all() { # SERVICES
  local ids up problem
  mapfile -t ids < <(containers --quiet --filter status=running)
  up=$(docker inspect --format '{{index .Config.Labels "cluster-trainer.up"}}' "${ids[0]}")
  say "asking ${1// /, } to stop"
  # up.sh may have removed them before `docker stop` has seen them end.
  problem=$(docker stop "${ids[@]}" 2>&1 >/dev/null) ||
    [[ -z $(containers --quiet --filter status=running) ]] || end_with 1 "$problem"
  [[ -z $up ]] || wait_for_end "$up"
  say "all have ended${up:+; \`make resume\` goes on with the run}"
}

# up.sh removes the containers and the network: a cluster that starts meanwhile would lose its own.
wait_for_end() { # PROCESS
  local limit=$((SECONDS + END_SECONDS))
  # Z: it has ended, and its parent has not looked yet.
  while [[ $(ps -o stat= -p "$1") == [^Z]* ]]; do
    ((SECONDS < limit)) || end_with 1 "all have ended, but up.sh (process $1) has not."
    sleep 0.1
  done
}

stop_one() { # INDEX SERVICES
  local service=worker-$1
  [[ " $2 " == *" $service "* ]] ||
    end_with 78 "WORKER: received \"$1\"; accepted: the number of one that runs: $(numbers "$2")."
  say "asking $service to stop"
  docker stop "$(container_of "$service")" >/dev/null
  say "$service has ended; \`make resume WORKER=$1\` starts it again"
}

main() {
  local running
  running=$(services_of --filter status=running)
  [[ -n $running ]] || end_with 1 "no worker of the project $COMPOSE_PROJECT_NAME runs here."
  if (($#)); then stop_one "$1" "$running"; else stop_all "$running"; fi
}

main "$@"
