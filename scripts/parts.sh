# shellcheck shell=bash
# For test.sh and chaos.sh.
# `part COMMAND…` runs one part of the tests. If a part fails, its code becomes `status`, and the next part runs, except
# after Ctrl-C. A part in which `-k` selects no test has not failed.
# `all_but FILE…` makes `rest` the list of all other files of tests that start containers. With a folder in place of its
# files, pytest would take them in the folder's order.
readonly INTERRUPTED=2 INTERRUPTED_INSIDE=130 NONE_SELECTED=5 # exit codes; all but the second are pytest's
status=$NONE_SELECTED

part() { # COMMAND...
    local code=0
    "$@" || code=$?
    case $code in
        0) [ "$status" != "$NONE_SELECTED" ] || status=0 ;;
        "$NONE_SELECTED") ;; # the tests that `-k` selects are in other parts
        "$INTERRUPTED" | "$INTERRUPTED_INSIDE") exit "$code" ;;
        *) status=$code ;;
    esac
}

all_but() { # FILE...
    local file
    rest=()
    for file in tests/cluster/test_*.py tests/image/test_*.py; do
        case " $* " in *" $file "*) ;; *) rest+=("$file") ;; esac
    done
}
