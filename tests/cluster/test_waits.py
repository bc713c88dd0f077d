"""The journals of a run with a slow worker show who waited, and for how long."""

from pathlib import Path

import pytest

from cluster_trainer.report.timeline import epoch_seconds, waits_for_others
from cluster_trainer.results import journal

pytestmark = pytest.mark.long  # tests/inside/test_waits.py tests the same in one process
SCRIPT = Path(__file__).parent / "workspace/slow_worker.py"
STEPS, SECONDS = 60, 0.04


def test_the_quick_worker_waits_for_the_slow_one(run):
    trained = run(WORKERS=2, SCRIPT=SCRIPT, WORKSPACE_DIR="").raise_unless_done()
    events = [journal.read(worker / journal.FILE) for worker in trained.workers]
    quick, slow = waits_for_others(events)
    first_call_at_most = 20
    assert quick > (STEPS - first_call_at_most) * SECONDS * 0.8
    assert slow < 0.1 * quick
    for seconds in map(epoch_seconds, events):
        assert seconds["input"] + seconds["sums"] <= seconds["calls"] <= seconds["all"]
