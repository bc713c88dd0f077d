"""The programs that `selftest` runs only on GPUs, here on logical CPU devices."""

import json

from cluster_trainer.selftest.parts import PROGRAMS


def test_sums_over_all_devices_are_right_and_timed(starts, tmp_path):
    script, result = tmp_path / "sums.py", tmp_path / "result.json"
    script.write_bytes((PROGRAMS / script.name).read_bytes())
    ended = starts.start(
        script, "mirrored", result, run_dir=tmp_path / "runs", TRAINER_LOGICAL_CPUS="2"
    )
    assert ended.code == 0, ended.output
    facts = json.loads(result.read_text())
    assert (facts["replicas"], facts["sum"]) == (2, 2.0)
    assert facts["seconds"] > 0
