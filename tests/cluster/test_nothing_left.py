"""The check at the end of a session sees leftovers, and a cluster leaves nothing behind."""

from harness.workbench import Workbench


def test_sees_containers_networks_and_volumes(workbench):
    other = Workbench(workbench.client, workbench.image)
    container = other.start("true")
    network = other.client.networks.create(other.new_name("network"))
    volume = other.client.volumes.create(other.new_name("volume"))
    try:
        assert sorted(other.leftovers()) == [
            f"container {container.name}",
            f"network {network.name}",
            f"volume {volume.name}",
        ]
    finally:
        container.remove(force=True)
        network.remove()
        volume.remove()
    assert other.leftovers() == []


def test_a_cluster_leaves_neither_container_nor_network_nor_volume(run, workbench):
    refused = run(WORKERS=1, TRAINER_MODEL="no-such-model")
    assert refused.code == 78, refused.output  # by its worker, which has run
    assert "worker-0" in refused.output
    assert workbench.leftovers() == []
