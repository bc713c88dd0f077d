"""The checks of a machine's GPUs before TensorFlow starts. Other files stand in for GPUs."""

import pytest

from harness.ended import wait_for_end

# The engine mounts /dev/null in place of the files by which GPUs are counted.
TWO_GPUS = {"volumes": ["/dev/null:/dev/nvidia0", "/dev/null:/dev/nvidia1"]}
SHARED = "WARNING worker-0 /dev/shm has 64 MiB for 2 GPUs"


def test_dockers_default_of_shared_memory_is_warned_of(run_to_end):
    ended = run_to_end("true", **TWO_GPUS)
    assert ended.code == 0
    assert SHARED in ended.err


def test_what_the_pages_say_to_give_is_enough(run_to_end):
    assert "/dev/shm" not in run_to_end("true", shm_size="1g", **TWO_GPUS).err


@pytest.mark.parametrize("setting", ["=eth9", "ib"])
def test_an_interface_that_is_not_there_is_refused(run_to_end, setting):
    environment = {"NCCL_SOCKET_IFNAME": setting}
    ended = run_to_end("true", shm_size="1g", environment=environment, **TWO_GPUS)
    assert ended.code == 78
    assert f'NCCL_SOCKET_IFNAME: received "{setting}"' in ended.err


def test_a_machine_without_gpus_is_not_checked(run_to_end):
    ended = run_to_end("true", environment={"NCCL_SOCKET_IFNAME": "=eth9"})
    assert ended.code == 0


@pytest.fixture
def networks(workbench):
    """Two networks between machines. The names in WORKER_HOSTS resolve on the second only."""
    made = [
        workbench.client.networks.create(workbench.new_name("network"), internal=True)
        for _ in range(2)
    ]
    yield made
    for network in made:
        network.reload()
        for container in network.containers:
            container.remove(force=True)
        network.remove()


def test_an_interface_that_does_not_lead_to_the_peers_is_warned_of(run_container, networks):
    first, second = networks
    workers = [
        run_container(
            "true",
            network=first.name,
            shm_size="1g",
            environment={"WORKER_HOSTS": "peer-0,peer-1", "WORKER_INDEX": str(index)},
            **TWO_GPUS,
        )
        for index in range(2)
    ]
    for index, worker in enumerate(workers):
        second.connect(worker, aliases=[f"peer-{index}"])
    for index, worker in enumerate(workers):
        ended = wait_for_end(worker)
        assert ended.code == 0
        assert f"worker-{1 - index} is reached over eth1" in ended.err
        assert "NCCL_SOCKET_IFNAME==eth1" in ended.err
