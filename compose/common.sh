# shellcheck shell=bash
# What up.sh, stop.sh, resume.sh and data.sh have in common; they source it.

export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-cluster-trainer}

say() { printf 'cluster-trainer: %s\n' "$1"; }

end_with() { # CODE SENTENCE...
  say "${*:2}" >&2
  exit "$1"
}

folder() { # VARIABLE PATH
  [[ -d $2 ]] || end_with 78 "$1: received \"$2\"; accepted: a folder that is there."
  cd "$2" && pwd
}

containers() { # OPTIONS OF docker ps...
  docker ps --all --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" "$@"
}

# The containers' services, in the order of their numbers: worker-0 worker-1 …
services_of() { # OPTIONS OF docker ps...
  containers --format '{{.Label "com.docker.compose.service"}}' "$@" | sort | paste -sd ' '
}

numbers() { # SERVICES
  local all=${1//worker-/}
  echo "${all// /, }"
}

container_of() { # SERVICE
  containers --quiet --no-trunc --filter "label=com.docker.compose.service=$1"
}

# Prints the file of the newest checkpoint that a run's workers have, nothing if there is none.
newest_checkpoint() { # FOLDER WORKERS
  local index folders=()
  for ((index = 0; index < $2; index++)); do folders+=("$1/worker-$index/checkpoints"); done
  { find "${folders[@]}" -name '[0-9]*.npz' 2>/dev/null || true; } |
    awk -F / '{print $NF "\t" $0}' | sort -n | tail -n 1 | cut -f 2
}

# A run's folder holds in this file what it was started with, one NAME=value a line.
# shellcheck disable=SC2034 # the scripts that source this use it
settings_file=cluster.env
# What decides a run: all that is not said anew at each start, as its name and its folder are.
# shellcheck disable=SC2034
settings='^(WORKERS|NETWORK|IMAGE|OVERLAYS|GRACE_SECONDS|DATA_DIR|WORKSPACE_DIR|RUN_UID|RUN_GID'
settings+='|WORKER_[0-7]_GPUS|RENDEZVOUS_TIMEOUT|GPUS_PER_WORKER|STARTUP_TIMEOUT|STOP_GRACE_SECONDS'
settings+='|MAX_RESTARTS|LOG_FORMAT|REQUIREMENTS_FILE|TRAINER_[A-Z_]+)$'
