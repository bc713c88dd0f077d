"""A worker's lines as the screen shows them."""

import pytest

from local_cluster.run.lines import shown


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (b"12:00:01 INFO worker-1 done\n", b"worker-1 | 12:00:01 INFO done\n"),
        (b"12:00:01 INFO worker-10 done\n", b"worker-1 | 12:00:01 INFO worker-10 done\n"),
        (b"12:00:01 INFO worker-0 done\n", b"worker-1 | 12:00:01 INFO worker-0 done\n"),
        (b"  worker-1 said\n", b"worker-1 |   worker-1 said\n"),
        (b"no newline", b"worker-1 | no newline\n"),
        (b"\n", b"worker-1 | \n"),
        (b"\xff\xfe no text\n", b"worker-1 | \xff\xfe no text\n"),
        (
            b"W0000 00:00:1.5 7 gpu.cc:1] no GPU\n",
            b"worker-1 | W0000 00:00:1.5 7 gpu.cc:1] no GPU\n",
        ),
        (b"I am ok\n", b"worker-1 | I am ok\n"),
        (b"I0000 00:00:1795351033.728998      17 port.cc:153] oneDNN\n", None),
        (b"WARNING: All log messages before absl::InitializeLog() is called\n", None),
        (b"W0000 00:00:1 17 dataset.cc:997] Input of GeneratorDatasetOp::Dataset\n", None),
    ],
)
def test_the_name_stands_once_and_notes_are_left_out(line, seen):
    assert shown("worker-1", line) == seen
