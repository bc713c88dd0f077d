"""The list of problems with machines."""

from dataclasses import replace

import pytest

from machines.checks.facts import Facts
from machines.checks.own import NONE, Own
from machines.checks.problems import problems
from machines.hosts_setting import Host
from machines.image import Image
from machines.machine import Machine

CPU = Image("i:1", "layers", 10**9, "amd64", for_gpus=False)
GPU = Image("i:1", "layers", 10**9, "amd64", for_gpus=True)
WHOLE = {
    "machine": ["x86_64"],
    "system": ["Linux"],
    "dir": ["/home/ana/cluster-trainer"],
    "free": ["9000000"],
    "docker": ["20.10.24+dfsg1"],
    "docker_free": ["9000000"],
    "runtimes": ['{"nvidia":{},"runc":{}}'],
    "image": ["layers"],
    "listens": ["0016"],
    "gpu": ["0, 550.54.14", "1, 550.54.14"],
}


def a_machine(told=WHOLE, index=0, clock=0.0, error="", **host):
    host = Host(f"ana@m{index}", address=f"10.0.0.{index}", **host)
    return Facts(Machine(host, index), told, error, clock)


def without(**changes):
    return {name: told for name, told in (WHOLE | changes).items() if told is not None}


@pytest.mark.parametrize("image", [CPU, GPU])
def test_nothing_is_wrong(image):
    assert problems([a_machine(), a_machine(index=1)], image) == []


@pytest.mark.parametrize(
    ("told", "image", "named"),
    [
        (without(docker=None, docker_error=["permission denied"]), CPU, "permission denied"),
        (without(printed=["Welcome"]), CPU, '"Welcome"'),
        (without(docker=["19.03.1"]), CPU, "19.03.1"),
        (without(system=["Darwin"], machine=["arm64"], docker=None), CPU, "it runs Darwin"),
        (without(machine=["aarch64"]), CPU, "aarch64"),
        (without(image=["other"], docker_free=["100"]), CPU, "GB free"),
        (without(free=["100"]), CPU, "less than 1 GB"),
        (without(listens=["0016", "08AE"]), CPU, "2222"),
        (without(not_writable=["/home"]), CPU, "/home"),
        (without(there=["p-worker-0", "p-worker-0"]), CPU, "docker --host ssh://ana@m0 rm"),
        (without(runtimes=['{"runc":{}}']), GPU, "container toolkit"),
        (without(gpu=None), GPU, "nvidia-smi"),
        (without(gpu=["0, 510.1"]), GPU, "510.1"),
    ],
)
def test_each_thing_that_is_wrong_is_a_sentence(told, image, named):
    (sentence,) = problems([a_machine(told)], image)
    assert sentence.startswith("ana@m0: ")
    assert named in sentence


@pytest.mark.parametrize(
    "data",
    ["/", "/home", "/home/ana", "/home/ana/cluster-trainer", "/home/ana/.ssh", "/home/ana/.ssh/x"],
)
def test_data_may_not_be_a_folder_with_keys_or_code(data):
    real = {"real_data": [data], "real_home": ["/home/ana"]}
    told = without(**real, real_dir=["/home/ana/cluster-trainer"])
    (sentence,) = problems([a_machine(told, data="/x")], CPU)
    assert sentence.startswith("ana@m0: data=/x ")


@pytest.mark.parametrize("data", ["/mnt", "/home/ana/sets", "/home/ana/cluster-trainer/data"])
def test_data_may_be_another_folder(data):
    real = {"real_data": [data], "real_home": ["/home/ana"]}
    told = without(**real, real_dir=["/home/ana/cluster-trainer"])
    assert problems([a_machine(told, data=data)], CPU) == []


def test_an_image_that_is_there_needs_no_space():
    assert problems([a_machine(without(docker_free=["100"]))], CPU) == []


def test_gpus_are_looked_for_where_a_machine_names_some():
    (sentence,) = problems([a_machine(gpus="1,7")], CPU)
    assert "no GPU 7" in sentence


def test_a_machine_that_does_not_answer_hides_no_other():
    those = [a_machine({}, error="refused"), a_machine(without(docker=["1.0"]), index=1)]
    found = problems(those, CPU)
    assert [one.split(":")[0] for one in found] == ["ana@m0", "ana@m1"]
    assert "refused" in found[0]


@pytest.mark.parametrize("option", ["name=rootless", "name=userns"])
def test_a_docker_whose_users_are_others_is_refused(option):
    told = without(security=[f'["name=seccomp,profile=builtin","{option}"]'])
    assert len(problems([a_machine(told)], CPU)) == 1


def test_of_two_clocks_nobody_knows_which_is_wrong():
    (sentence,) = problems([a_machine(), a_machine(index=1, clock=60.0)], CPU)
    assert sentence.startswith("ana@m0, ana@m1: ")


@pytest.mark.parametrize(("image", "number"), [(CPU, 0), (GPU, 1)])
def test_two_workers_of_one_machine_name_their_gpus(image, number):
    hosts = Host("ana@m0", gpus="0", address="m0"), Host("ana@m0", port="9", address="m0")
    those = [Facts(Machine(host, at), WHOLE) for at, host in enumerate(hosts)]
    assert len(problems(those, image)) == number


OWN = Own({("ana@m0", "p-worker-0"): 2222}, may_run=True)


@pytest.mark.parametrize(
    ("own", "number"), [(OWN, 0), (Own(OWN.ports, may_run=False), 2), (Own({}, may_run=True), 2)]
)
def test_a_worker_that_is_to_be_replaced_may_run(own, number):
    told = without(there=["p-worker-0"], listens=["08AE"], container=["p-worker-0"], taken=["1"])
    assert len(problems([a_machine(told)], CPU, own)) == number


@pytest.mark.parametrize(("own", "number"), [(Own(OWN.ports, may_run=False), 0), (NONE, 1)])
def test_a_container_that_has_ended_may_not_have_the_name(own, number):
    told = without(container=["p-worker-0"], taken=["1"])
    assert len(problems([a_machine(told)], CPU, own)) == number


def test_a_worker_of_the_last_start_is_known_where_its_machine_is_named_differently():
    told = without(container=["p-worker-0"], taken=["1"], of_start=["p-worker-0"])
    other = Own({("m0", "p-worker-0"): 2222}, may_run=False, start="s")
    assert problems([a_machine(told)], CPU, other) == []
    there = without(there=["p-worker-0"], listens=["08AE"], of_start=["p-worker-0"])
    assert problems([a_machine(there)], CPU, replace(other, may_run=True)) == []
    assert len(problems([a_machine(there)], CPU, other)) == 2


def test_a_clock_that_differs_from_the_others():
    those = [a_machine(clock=1.0), a_machine(index=1), a_machine(index=2, clock=-60.0)]
    (sentence,) = problems(those, CPU)
    assert sentence.startswith("ana@m2: ")


def test_the_operators_own_clock_does_not_count():
    assert problems([a_machine(clock=60.0), a_machine(index=1, clock=61.0)], CPU) == []


@pytest.mark.parametrize("port", ["2222", "2300"])
def test_one_machine_under_two_names_needs_two_ports(port):
    hosts = Host("ana@m0", address="m0"), Host("gpu-box", address="M0", port=port)
    found = problems([Facts(Machine(host, at), WHOLE) for at, host in enumerate(hosts)], CPU)
    assert [one.partition(":")[0] for one in found] == ["gpu-box"] * (port == "2222")


def test_one_machine_under_two_names_shares_its_gpus():
    hosts = Host("ana@m0", address="m0"), Host("gpu-box", address="m0", port="9", gpus="0")
    found = problems([Facts(Machine(host, at), WHOLE) for at, host in enumerate(hosts)], GPU)
    assert [one.partition(":")[0] for one in found] == ["ana@m0"]


@pytest.mark.parametrize(
    ("hosts", "port", "number"),
    [
        (["m0", "m1"], "9400", 0),
        (["m0", "m0"], "9400", 2),  # one machine
        (["m0", "m1"], "2223", 2),  # a worker's
        (["m0", "m1"], "22", 2),  # another program's
        (["m0", "m0"], "x", 0),  # the workers refuse it
        (["m0", "m0"], "", 0),
    ],
)
def test_each_worker_needs_the_metrics_port_for_itself(hosts, port, number):
    those = [
        Facts(Machine(Host(name, address=name, port=str(2222 + at)), at), WHOLE)
        for at, name in enumerate(hosts)
    ]
    found = problems(those, CPU, metrics_port=port)
    assert len(found) == number
    assert all(f"METRICS_PORT={port}" in one for one in found)


def test_a_worker_that_is_to_be_replaced_may_have_the_metrics_port():
    told = without(there=["p-worker-0"], listens=["08AE", "24B8"])
    assert problems([a_machine(told)], CPU, OWN, metrics_port="9400") == []


def test_an_address_that_is_each_machines_own():
    one = Facts(Machine(Host("ana@m1", address="127.0.0.1"), 0), WHOLE)
    assert problems([one], CPU) == []
    (sentence,) = problems([one, a_machine(index=1)], CPU)
    assert "address=" in sentence
