"""Other programs are waited for within a limit, whatever they have started."""

import subprocess
import time

from local_cluster.processes import NO_ANSWER, answer_of


def test_a_limit_holds_though_a_grandchild_keeps_the_pipes_open():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    began = time.monotonic()
    process = subprocess.Popen(["sh", "-c", "sleep 20 & echo $!; wait"], **pipes)
    answer = answer_of(process, 0.5)
    assert time.monotonic() - began < 10
    assert answer.returncode == NO_ANSWER
    assert "0.5 s" in answer.stderr
