"""What the command finds in its environment beside what was given."""

import pytest

from entrypoint.settings.command_environment import command_environment
from entrypoint.settings.environ import read_environ

OF_CLUSTER = '{"cluster": {}}'
LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@pytest.mark.parametrize(
    ("tf_config", "given", "level"),
    [
        (OF_CLUSTER, {LEVEL: "1"}, "2"),
        (OF_CLUSTER, {LEVEL: "1", "TRAINER_COLLECTIVES": "ring"}, "2"),
        (OF_CLUSTER, {LEVEL: "1", "TRAINER_COLLECTIVES": "tensorflow"}, "1"),
        (OF_CLUSTER, {LEVEL: "0"}, "0"),
        (OF_CLUSTER, {}, None),
        (None, {LEVEL: "1"}, "1"),
    ],
)
def test_a_cluster_that_may_sum_over_a_ring_leaves_warnings_out(tmp_path, tf_config, given, level):
    """A sum that fails is two pages of them; a level that somebody chose stays."""
    assert command_environment(read_environ(given, tmp_path), tf_config).get(LEVEL) == level
