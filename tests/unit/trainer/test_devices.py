import pytest

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names import devices


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/gpu:0,/gpu:1", ("GPU:0", "GPU:1")),
        ("GPU:0", ("GPU:0",)),
        ("/device:GPU:3, gpu:1", ("GPU:1", "GPU:3")),
        ("gpu:10,gpu:9", ("GPU:9", "GPU:10")),
        ("/cpu:0", ("CPU:0",)),
    ],
)
def test_devices_are_named_as_tensorflow_names_them(text, found):
    assert devices.parse(text) == found


@pytest.fixture
def read(tmp_path):
    base = {"TRAINER_RUN_DIR": str(tmp_path)}
    return lambda **settings: TrainerConfig.read(
        base | {f"TRAINER_{name.upper()}": value for name, value in settings.items()}, []
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"devices": "/gpu:0,"}, '"" is no device'),
        ({"devices": "/tpu:0"}, "such as /gpu:0,/gpu:1"),
        ({"devices": "0,1"}, '"0" is no device'),
        ({"devices": "/gpu:0,GPU:0"}, "each device once"),
        ({"devices": "/gpu:0,/cpu:0"}, "cannot be mixed"),
        ({"devices": "/cpu:1"}, "accepted: CPU:0. TRAINER_LOGICAL_CPUS splits the CPU into more"),
        ({"devices": "/cpu:2", "logical_cpus": "2"}, "accepted: CPU:0 CPU:1"),
        ({"devices": "/cpu:1", "logical_cpus": "2"}, "accepted: CPU:0. The parts of a CPU are"),
        ({"devices": "cpu:0,cpu:2", "logical_cpus": "3"}, "accepted: CPU:0,CPU:1. The parts"),
        ({"devices": "/gpu:0", "logical_cpus": "2"}, "TRAINER_LOGICAL_CPUS is 2"),
        ({"devices": "/gpu:0,/gpu:1", "strategy": "none"}, "one device, since TRAINER_STRATEGY"),
        ({"logical_cpus": "2", "strategy": "none"}, "1, since TRAINER_STRATEGY is none"),
        ({"logical_cpus": "0"}, "1 or more"),
    ],
)
def test_devices_that_cannot_be_had_are_refused_before_tensorflow(read, settings, said):
    with pytest.raises(ConfigurationError) as refused:
        read(**settings)
    assert len(refused.value.problems) == 1
    assert said in str(refused.value)


def test_workers_may_use_other_devices_but_as_many(read):
    shared = [read(devices=text).shared_settings() for text in ("gpu:0,gpu:1", "gpu:2,gpu:3")]
    assert shared[0] == shared[1]
    assert shared[0]["TRAINER_DEVICES"] == "2 GPUs"
    assert read(devices="gpu:0").shared_settings() != shared[0]
    assert read(logical_cpus="2").shared_settings() != read(logical_cpus="4").shared_settings()
