#!/usr/bin/env bash
# Prepares data sets where the local cluster finds them, in a container of its own:
#   data.sh prepare NAME      a TensorFlow Datasets set, downloaded if need be
#   data.sh sample NAME...    small samples of sets, from the pictures in .build/pictures
#
# Environment: IMAGE, DATA_DIR (a folder or a volume; as up.sh takes it), RUN_UID, RUN_GID,
# SAMPLE_PICTURES=600 (of each sample), and the proxies' variables.
# Exit code: 0 when the set is there; 78 for a mistake or a set that cannot be prepared.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=compose/common.sh
. "$here/common.sh"

image=${IMAGE:-cluster-trainer:cpu}
pictures=$here/../.build/pictures
user=${RUN_UID:-${SUDO_UID:-$(id -u)}}:${RUN_GID:-${SUDO_GID:-$(id -g)}}

# The volume that Compose would make, with the labels by which it knows it as its own.
data_place() {
  local volume=${COMPOSE_PROJECT_NAME}_data
  if [[ -n ${DATA_DIR:-} ]]; then
    if [[ -d $DATA_DIR || $DATA_DIR == */* ]]; then folder DATA_DIR "$DATA_DIR"; return; fi
    volume=${COMPOSE_PROJECT_NAME}_$DATA_DIR
  fi
  docker volume inspect "$volume" >/dev/null 2>&1 ||
    docker volume create --label "com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
      --label "com.docker.compose.volume=${volume#"${COMPOSE_PROJECT_NAME}_"}" "$volume" >/dev/null
  echo "$volume"
}

run() { # COMMAND..., after the options in `mounts`
  local variable options=()
  for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    if [[ -n ${!variable:-} ]]; then options+=(--env "$variable"); fi
  done
  docker image inspect "$image" >/dev/null 2>&1 ||
    end_with 1 "there is no image $image here; \`make build\` builds it."
  # What fails is told at once and not tried again.
  docker run --rm --user "$user" --read-only --tmpfs /tmp:mode=1777 --cap-drop ALL \
    --security-opt no-new-privileges:true --env MAX_RESTARTS=0 --env CUDA_VISIBLE_DEVICES=-1 \
    --env TF_CPP_MIN_LOG_LEVEL=3 "${options[@]}" "${mounts[@]}" "$image" python -m "$@"
}

main() {
  local what=${1:-} place mounts=()
  (($# > 1)) && [[ -n $2 ]] ||
    end_with 78 "DATASET: received \"\"; accepted: the name of a TensorFlow Datasets set," \
      "as in \`make data DATASET=tf_flowers\`."
  place=$(data_place)
  mounts=(--volume "$place:/data")
  case $what in
    prepare) run trainer.data.prepare "$2" ;;
    sample)
      mounts+=(--volume "$(folder pictures "$pictures"):/pictures:ro")
      run trainer.data.sample --pictures "${SAMPLE_PICTURES:-600}" "${@:2}"
      ;;
    *) end_with 78 "data.sh: received \"$what\"; accepted: prepare or sample." ;;
  esac
}

main "$@"
