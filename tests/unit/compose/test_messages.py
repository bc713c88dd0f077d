"""Messages cause no error when their reader is gone."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "compose"
PROGRAM = """
import sys
from local_cluster.messages import complain, say
for _ in range(3):
    say("a sentence " * 10_000)
complain("the end \\udcff")
sys.exit(5)
"""


def test_a_reader_that_is_gone_changes_nothing_else():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=FOLDER, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (5, b"cluster-trainer: the end \xff\n")
