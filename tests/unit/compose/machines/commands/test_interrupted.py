"""Ctrl-C while files are copied from or to machines."""

import signal

import pytest

from harness.waiting import wait_until

TAR = """#!/bin/sh
/bin/tar "$@" | head -c 1000
touch "$FAKE_MACHINE/copies"
sleep 300
"""
"""A `tar` that stops in the middle."""
INTERRUPTED = 130


@pytest.mark.parametrize("command", ["fetch", "up"])
def test_ctrl_c_ends_a_copy_and_leaves_no_part_of_a_file(world, command):
    world.put("m1", 0, "exited")
    world.put("m2", 1, "exited")
    first = world.machines["m1"].folder
    results = first / "cluster-trainer/runs/first/worker-0"
    results.mkdir(parents=True)
    (results / "model.keras").write_bytes(b"x" * 100_000)
    (world.folder / "train.py").touch()
    tar = world.folder / "machines/bin/tar"
    tar.write_text(TAR)
    tar.chmod(0o755)
    script = {"SCRIPT": str(world.folder / "train.py"), "HOSTS": "ana@m1 ana@m2"}
    process = world.start(command, **(script if command == "up" else {}))
    try:
        wait_until((first / "copies").exists, 60, "the copy has begun", lambda: "")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == INTERRUPTED
    finally:
        process.kill()
    assert not [*(world.folder / "runs/first").rglob("*model.keras*")]
