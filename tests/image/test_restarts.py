"""Crashes in a real container: restarts, giving up, and leftover processes."""

COUNT = "echo run >> /tmp/runs; runs=$(wc -l < /tmp/runs)"
# Prints the name and state of every process, except this shell's own helpers.
PROCESSES = "for stat in /proc/[0-9]*/stat; do cut -d' ' -f2,3 $stat; done 2>/dev/null"
FIT_AND_FAIL = """
import keras, numpy as np
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
rows = np.ones((32, 1))
model.fit(rows, rows, batch_size=16, epochs=2, verbose=0)
raise ValueError("a typo")
"""
LEAVES_ONE = (
    f"{COUNT}; echo run $runs; "
    # In its own process group, and deaf to signals, like a helper process that nobody ends. It is a
    # copy of bash until it has become `sleep`.
    "(set -m; trap '' TERM HUP; sleep 4321 & until grep -q '(sleep)' /proc/$!/stat; do :; done); "
    f"if [ $runs = 1 ]; then exit 1; fi; {PROCESSES}"
)


def test_a_command_that_crashes_twice_and_then_works_succeeds(run_to_end):
    ended = run_to_end("bash", "-c", f"{COUNT}; [ $runs -gt 2 ] || exit 1; echo works")
    assert (ended.code, ended.out) == (0, "works\n")
    assert "restart 1 of 3" in ended.err
    assert "restart 2 of 3" in ended.err
    assert "restart 3 of 3" not in ended.err


def test_a_command_that_always_crashes_is_given_up_with_the_reason(run_to_end, tmp_path):
    ended = run_to_end(
        *("python", "-c", "raise RuntimeError('the disk is full')"),
        environment={"MAX_RESTARTS": "2", "FAILURE_FILE": "/failures/reason"},
        volumes=[f"{tmp_path}:/failures"],
    )
    assert ended.code == 1
    assert ended.err.count("Traceback") == 3
    reason = "gave up after 2 restarts without progress: the command ended with exit code 1"
    assert ended.err.splitlines()[-1].endswith(f" ERROR worker-0 {reason}")
    failure = (tmp_path / "reason").read_text().splitlines()
    assert failure[0] == f"worker-0: {reason}"
    assert failure[-1] == "RuntimeError: the disk is full"


def test_a_script_that_fails_after_its_fit_is_given_up(run_to_end):
    """The fit has ended before the second run, so no later run makes progress."""
    ended = run_to_end("python", "-c", FIT_AND_FAIL, environment={"MAX_RESTARTS": "1"})
    assert ended.code == 1
    assert ended.err.count("ValueError: a typo") == 2
    assert "fit 1: had ended after 4 steps" in ended.out
    assert "gave up after 1 restart without progress" in ended.err


def test_an_earlier_run_leaves_no_process_to_the_next(run_to_end):
    ended = run_to_end("bash", "-c", LEAVES_ONE)
    first, second = ended.out.partition("run 2\n")[::2]
    assert (ended.code, first) == (0, "run 1\n"), ended
    processes = second.splitlines()
    # The second run's own `sleep` is found, so that of the first run would be found, too.
    assert [process.split()[0] for process in processes if "sleep" in process] == ["(sleep)"]
    assert not [process for process in processes if process.endswith(" Z")]
