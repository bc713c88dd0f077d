"""A root that may not be written to. Workers of local clusters train so: test_compose_files.py."""


def test_progress_can_be_told_on_a_read_only_root(run_to_end):
    # Three crashes, each after some progress, are more than one restart without any.
    script = 'echo $RESTART_COUNT >> "$PROGRESS_FILE" && [ "$RESTART_COUNT" = 3 ]'
    ended = run_to_end("sh", "-c", script, read_only=True, environment={"MAX_RESTARTS": "1"})
    assert ended.code == 0, ended.err


def test_a_working_directory_that_may_not_be_searched_is_told(run_to_end):
    ended = run_to_end("echo", "ran", working_dir="/root", user="1000:1000")
    assert (ended.code, ended.out) == (0, "ran\n"), ended
    assert "WARNING worker-0 /root cannot be searched" in ended.err
