"""The kernel's count of processes killed for lack of memory, as both packages read it."""

import pytest

import cluster_trainer.process.oom
import entrypoint.supervision.child.out_of_memory

MIB = 2**20
V2 = ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill {}\noom_group_kill 0\n")
V1 = ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n")
LIMITS = {V2: "memory.max", V1: "memory/memory.limit_in_bytes"}
NO_LIMIT = {V2: "max", V1: "9223372036854771712"}

either_package = pytest.mark.parametrize(
    "package", [entrypoint.supervision.child.out_of_memory, cluster_trainer.process.oom]
)
either_version = pytest.mark.parametrize("version", [V2, V1], ids=["v2", "v1"])


def write(cgroup, version, kills, limit=""):
    """Make the files of a container's cgroup."""
    name, text = version
    (cgroup / "memory").mkdir(exist_ok=True)
    (cgroup / name).write_text(text.format(kills))
    (cgroup / LIMITS[version]).write_text(f"{limit}\n")


@either_package
@either_version
def test_a_kill_is_explained_with_the_limit(package, version, tmp_path):
    write(tmp_path, version, 1, 600 * MIB)
    kills = package.OomKills(tmp_path)
    write(tmp_path, version, 2, 600 * MIB)
    said = "out of memory, this container's limit is 600 MiB (docker run --memory)"
    assert kills.cause().startswith(said)


@either_package
def test_in_a_pod_the_pods_own_word_for_the_limit_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setattr(package, "is_in_pod", lambda: True)
    write(tmp_path, V2, 1, 600 * MIB)
    kills = package.OomKills(tmp_path)
    write(tmp_path, V2, 2, 600 * MIB)
    assert "limit is 600 MiB (resources.limits.memory)" in kills.cause()
    assert "docker" not in kills.cause()


@either_package
@either_version
def test_kills_from_before_explain_nothing(package, version, tmp_path):
    write(tmp_path, version, 3, 600 * MIB)
    assert package.OomKills(tmp_path).cause() == ""


@either_package
@either_version
def test_without_a_limit_here_the_memory_of_others_ran_out(package, version, tmp_path):
    write(tmp_path, version, 0, NO_LIMIT[version])
    kills = package.OomKills(tmp_path)
    write(tmp_path, version, 1, NO_LIMIT[version])
    assert kills.cause().startswith("out of memory: the machine, or the pod or job around")


@either_package
def test_without_a_counter_nothing_is_known(package, tmp_path):
    assert package.OomKills(tmp_path).cause() is None


@either_package
@pytest.mark.parametrize("text", ["", "oom_kill", "oom_kill many", "oom_kill_disable 0\n"])
def test_a_counter_that_cannot_be_read_is_none(package, text, tmp_path):
    (tmp_path / "memory.events").write_text(text)
    assert package.OomKills(tmp_path).cause() is None
