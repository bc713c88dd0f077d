"""What is said of a run when it is over."""

from pathlib import Path

import pytest

from local_cluster.run.report import how_to_go_on, last_epoch

CHECKPOINT = Path("00001200-0123456789abcdef.npz")


def test_the_last_epoch_is_read(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"epoch": 1}\n{"epoch": 2, "loss": 0.39166, "rate": 2e-05, "seconds": 0.17}\n')
    assert dict(last_epoch(file)) == {
        "epoch": "2",
        "loss": "0.3917",
        "rate": "0.0000",
        "seconds": "0.1700",
    }


@pytest.mark.parametrize("content", ["", "{\n", "[1]\n", None])
def test_without_metrics_there_is_nothing_to_show(tmp_path, content):
    file = tmp_path / "metrics.jsonl"
    if content is not None:
        file.write_text(content)
    assert list(last_epoch(file)) == []


@pytest.mark.parametrize("code", [129, 130, 143])
def test_a_run_that_was_stopped_goes_on(code):
    assert "stopped; `make resume` goes on from step 1200" in how_to_go_on(code, CHECKPOINT)
    assert "begins at step 0" in how_to_go_on(code, None)


def test_a_run_that_failed_goes_on_where_there_is_a_checkpoint():
    assert how_to_go_on(75, CHECKPOINT).startswith("failed with exit code 75; `make resume`")
    assert how_to_go_on(1, None) == "failed with exit code 1"


def test_a_mistake_would_fail_again():
    assert how_to_go_on(78, CHECKPOINT) == "failed with exit code 78"
