"""The process of a start that keeps its fits."""

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from threading import Timer

import pytest

from cluster_trainer.fits.identity.owner import Owner, claim, read, this_process, write
from cluster_trainer.problems import ConfigurationError

pytestmark = pytest.mark.slow

HOLD = """
import sys
from pathlib import Path
from cluster_trainer.fits.identity.owner import claim, this_process
locks = {}
mine = this_process({"START_ID": sys.argv[2]}, "first.py")
claimed = claim(Path(sys.argv[1]), mine, locks)
print(claimed.other is None, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Return a function with which another process takes the folder, and holds it."""
    running = []

    def hold(start):
        command = [sys.executable, "-c", HOLD, str(tmp_path), start]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )
        running.append(child)
        return child.stdout.readline().strip() == "True"

    def end():
        for child in running:
            child.stdin.close()
            child.wait(30)
            child.stdout.close()
        running.clear()

    hold.end = end
    yield hold
    end()


def mine(start, script="first.py"):
    return this_process({"START_ID": start}, script)


def test_the_first_process_of_a_start_keeps_its_fits_and_no_other(tmp_path, holder):
    assert holder("a")
    claimed = claim(tmp_path, mine("a"), {})
    assert isinstance(claimed.other, Owner)
    assert claimed.other.pid != os.getpid()


def test_nor_does_a_later_one_when_the_first_is_over(tmp_path, holder):
    assert holder("a")
    holder.end()
    assert claim(tmp_path, mine("a"), {}).other is not None


def test_a_later_process_keeps_other_starts_out_while_it_trains(tmp_path, holder):
    """Else another start would take over the folder, and then a process of the first start."""
    assert holder("a")
    holder.end()
    assert not holder("a")
    with pytest.raises(ConfigurationError, match="TRAINER_RUN_DIR"):
        claim(tmp_path, mine("b"), {})
    assert claim(tmp_path, mine("a"), {}).other is not None
    holder.end()
    assert claim(tmp_path, mine("b"), {}).other is None


def test_the_next_start_keeps_them_and_knows_who_did(tmp_path, holder):
    assert holder("a")
    holder.end()
    claimed = claim(tmp_path, mine("b", "second.py"), {})
    assert claimed.other is None
    assert claimed.before is not None
    assert claimed.before.script == "first.py"


def test_a_process_of_another_start_at_the_same_time_is_refused(tmp_path, holder):
    assert holder("a")
    with pytest.raises(ConfigurationError, match="TRAINER_RUN_DIR"):
        claim(tmp_path, mine("b"), {})


def test_processes_without_a_start_keep_out_of_each_other(tmp_path, holder):
    """Two containers may have the same process number."""
    assert holder("")
    with pytest.raises(ConfigurationError, match="TRAINER_RUN_DIR"):
        claim(tmp_path, replace(mine(""), pid=read(tmp_path).pid), {})
    holder.end()
    assert claim(tmp_path, mine(""), {}).other is None


def test_one_that_comes_while_the_first_takes_the_folder_waits_until_it_has(tmp_path):
    first = (tmp_path / "LOCK").open("a")
    fcntl.flock(first, fcntl.LOCK_EX)  # it has not written who it is yet
    later = Timer(0.2, lambda: write(tmp_path, replace(mine("a"), pid=1)))
    later.start()
    assert claim(tmp_path, mine("a"), {}).other is not None
    later.join()
    first.close()


def test_a_run_that_goes_on_keeps_the_time_when_it_began(tmp_path):
    locks = {}
    claim(tmp_path, mine("a"), locks)
    began = read(tmp_path).began
    locks.pop(tmp_path).close()
    claim(tmp_path, mine("b"), {})
    assert read(tmp_path).began == began


@pytest.mark.parametrize("content", ["", "{", "[]", '{"start": 1}'])
def test_a_file_that_cannot_be_read_tells_of_nobody(tmp_path, content):
    (tmp_path / "OWNER.json").write_text(content)
    assert read(tmp_path) is None
