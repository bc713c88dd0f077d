def test_pid_1_is_tini(run_bash):
    assert run_bash("cat /proc/1/comm").split() == ["tini"]


def test_pid_1_collects_orphans(run_bash):
    # A grandchild whose parent has ended becomes PID 1's; uncollected it would show as "Z".
    orphan = "(sleep 0.1 &) ; sleep 0.5; cat /proc/[0-9]*/stat | cut -d' ' -f3 | grep -c Z"
    assert run_bash(orphan).strip() == "0"
