# shellcheck shell=bash
# Read by test.sh and chaos.sh: `part COMMAND…` runs one part of the tests. They go on after a part that failed, whose
# code becomes their `status`, but not after Ctrl-C. A part without a test that `-k` names has not failed.
readonly INTERRUPTED=2 INTERRUPTED_INSIDE=130 NONE_SELECTED=5 # exit codes; all but the second are pytest's
status=$NONE_SELECTED

part() { # COMMAND...
    local code=0
    "$@" || code=$?
    case $code in
        0) [ "$status" != "$NONE_SELECTED" ] || status=0 ;;
        "$NONE_SELECTED") ;; # all that `-k` names is in other parts
        "$INTERRUPTED" | "$INTERRUPTED_INSIDE") exit "$code" ;;
        *) status=$code ;;
    esac
}
