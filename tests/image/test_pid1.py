def test_pid_1_is_tini(run_bash):
    assert run_bash("cat /proc/1/comm").split() == ["tini"]


def test_where_tini_is_not_pid_1_it_collects_orphans_and_does_not_complain(workbench, run_to_end):
    """Under Slurm, for example, tini is one process of many."""
    launcher = workbench.inspect_image().attrs["Config"]["Entrypoint"]
    orphan = "(sleep 0.1 &); sleep 0.5; cat /proc/[0-9]*/stat | cut -d' ' -f3 | grep -c Z; true"
    shell = ("-c", '"$@"; true', "sh", *launcher, "bash", "-c", orphan)
    ended = run_to_end(*shell, entrypoint="/bin/sh")
    assert (ended.code, ended.out.strip()) == (0, "0"), ended
    assert "Tini" not in ended.err


def test_pid_1_collects_orphans(run_bash):
    # PID 1 adopts a grandchild whose parent has ended. Unless PID 1 reaps it, it stays as "Z".
    orphan = "(sleep 0.1 &) ; sleep 0.5; cat /proc/[0-9]*/stat | cut -d' ' -f3 | grep -c Z"
    assert run_bash(orphan).strip() == "0"
