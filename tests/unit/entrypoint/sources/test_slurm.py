"""Slurm's job steps: names, tasks and ports.

The lists are those of TensorFlow's own test of its SlurmClusterResolver
(tensorflow/python/distribute/cluster_resolver/slurm_cluster_resolver_test.py), of the man page of
srun ("OUTPUT ENVIRONMENT VARIABLES", SLURM_TASKS_PER_NODE) and of Slurm's own
testsuite/slurm_unit/common/hostlist/hostlist_nth-test.c.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.sources.formats.slurm_lists import MOST, SlurmListError, expand_nodes, expand_tasks
from entrypoint.sources.slurm import OF_A_STEP, find
from harness.contracts import check_any, refusal, view

THREE = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_STEP_NODELIST": "t02n13,t02n41,t02n43",
}
FIVE = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "t02n13,t02n41,t02n43",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1", "n1"),
        ("n[1,3]", "n1 n3"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[1-2],m5,o[3-4,6,7-9]", "n1 n2 m5 o3 o4 o6 o7 o8 o9"),
        ("n[0001-0003],m5,o[009-011]", "n0001 n0002 n0003 m5 o009 o010 o011"),
        ("n[01-03,07],m5", "n01 n02 n03 n07 m5"),
        ("host[1-3],host5", "host1 host2 host3 host5"),
        ("node[2,10],node1", "node2 node10 node1"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[98-102]", "n98 n99 n100 n101 n102"),
        ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
        ("n[1]", "n1"),
        ("a[1-2].example.com", "a1.example.com a2.example.com"),
        ("b04-[09-10]", "b04-09 b04-10"),
        ("t02n[13,41-43]", "t02n13 t02n41 t02n42 t02n43"),
        (" n1,n2\n", "n1 n2"),
    ],
)
def test_expands_nodes_with_their_zeros_and_in_their_order(text: str, expected: str) -> None:
    assert expand_nodes(text) == expected.split()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n[]", '"" in brackets'),
        ("n[1-]", '"1-" in brackets'),
        ("n[-1]", '"-1" in brackets'),
        ("n[3-1]", '"3-1" in brackets'),
        ("n[1,,2]", '"" in brackets'),
        ("n[a-c]", '"a-c" in brackets'),
        ("n[1-2-3]", '"1-2-3" in brackets'),
        ("n[٣]", "in brackets"),
        ("n[0-999999999]", "1000000000 entries"),
        ("n[0-999][0-999]", "1000000 entries"),
        (f"n[{'1-9,' * 100_000}1]", "900001 entries"),
        (f"n[{'9' * 5000}]", "in brackets"),
    ],
)
def test_refuses_nodes_that_it_cannot_expand(text: str, says: str) -> None:
    with pytest.raises(SlurmListError, match=r"\.$") as caught:
        expand_nodes(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", [2]),
        ("2,1,3", [2, 1, 3]),
        ("3(x2),2,1", [3, 3, 2, 1]),
        ("3(x2),2,11(x4)", [3, 3, 2, 11, 11, 11, 11]),
        ("13(x10)", [13] * 10),
        ("2(x3),1", [2, 2, 2, 1]),
    ],
)
def test_expands_tasks_per_node(text: str, expected: list[int]) -> None:
    assert expand_tasks(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "0", "3(x0)", "3(x2", "3(2)", "3,,2", "3 (x2)", "-1", "9999999999", "1(x999999999)"],
)
def test_refuses_tasks_that_it_cannot_expand(text: str) -> None:
    with pytest.raises(SlurmListError):
        expand_tasks(text)


def test_a_task_on_each_of_three_nodes() -> None:
    assert find(view(**THREE), 2222).tf_config() == {
        "cluster": {"worker": ["t02n13:8888", "t02n41:8888", "t02n43:8888"]},
        "task": {"type": "worker", "index": 0},
    }


def test_the_port_is_8888_plus_the_tasks_place_on_its_node() -> None:
    assert find(view(**FIVE), 2222).tf_config() == {
        "cluster": {
            "worker": ["t02n13:8888", "t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"]
        },
        "task": {"type": "worker", "index": 1},
    }


def test_worker_port_is_the_first_if_it_is_given() -> None:
    found = find(view(**FIVE, WORKER_PORT="7000"), 7000)
    assert found.spec.to_json()["worker"][:3] == ["t02n13:7000", "t02n13:7001", "t02n41:7000"]


def test_a_script_that_srun_has_not_started_is_no_step() -> None:
    batch = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NTASKS": "3"}
    assert find(view(**batch, SLURM_PROCID="0"), 2222) is None


@pytest.mark.parametrize("procid", [{"SLURM_PROCID": "0"}, {}])
@pytest.mark.parametrize("step", ["batch", "interactive", "extern", "4294967291", "4294967290"])
def test_the_steps_of_a_batch_script_and_of_salloc_are_no_step_of_srun(
    step: str, procid: dict[str, str]
) -> None:
    """Slurm numbers its own steps from 0xfffffff0: the batch script, salloc's shell and others."""
    batch = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_STEP_ID": step}
    assert find(view(**batch, **procid), 2222) is None


@pytest.mark.parametrize(
    "given",
    [
        {"SLURM_PROCID": "1"},
        {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n[1-2]"},
    ],
)
def test_a_task_without_its_steps_lists_is_refused(given: dict[str, str]) -> None:
    """Recipes of other frameworks pass the job's lists instead of the step's."""
    problems = refusal(find, view(**given, SLURM_JOB_ID="7"))
    assert [problem.name for problem in problems] == [*OF_A_STEP]


@pytest.mark.parametrize("missing", THREE)
def test_a_step_that_is_passed_on_in_part_is_refused(missing: str) -> None:
    """Otherwise each task would train alone."""
    some = {name: text for name, text in THREE.items() if name != missing}
    (problem,) = refusal(find, view(**some))
    assert (problem.name, problem.received) == (missing, None)


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        ({"SLURM_PROCID": "3"}, "SLURM_PROCID", "0 to 2, because SLURM_STEP_NUM_TASKS is 3"),
        ({"SLURM_PROCID": "-1"}, "SLURM_PROCID", "from 0"),
        ({"SLURM_PROCID": ""}, "SLURM_PROCID", "from 0"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS", "3, the sum"),
        ({"SLURM_STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS", "1 to 100000"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, "SLURM_STEP_TASKS_PER_NODE", "names 3"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1;1"}, "SLURM_STEP_TASKS_PER_NODE", "such as 3(x2),2,1"),
        ({"SLURM_STEP_NODELIST": "n[1-"}, "SLURM_STEP_NODELIST, entry 0", "host:port"),
        ({"SLURM_STEP_NODELIST": "n1,,n2"}, "SLURM_STEP_NODELIST, entry 1", "host:port"),
        ({"SLURM_STEP_NODELIST": "n[3-1]"}, "SLURM_STEP_NODELIST", "n[01-03,07],m5"),
        ({"SLURM_STEP_NODELIST": "n[1-2],n1"}, "SLURM_STEP_NODELIST", "each address once"),
        ({"SLURM_STEP_NODELIST": "n[1-2],localhost"}, "SLURM_STEP_NODELIST", "every other worker"),
    ],
)
def test_refuses_what_does_not_fit(change: dict[str, str], name: str, says: str) -> None:
    (problem,) = refusal(find, view(**(THREE | change)))
    assert problem.name == name
    assert says in problem.accepted


def test_refuses_more_tasks_than_there_are_ports() -> None:
    change = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "3"}
    one = FIVE | change | {"SLURM_STEP_NODELIST": "n1"}
    assert find(view(**one, WORKER_PORT="65533"), 65533) is not None
    environ = view(**one, WORKER_PORT="65534")
    with pytest.raises(Exception, match="2 more above it"):
        find(environ, 65534)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ({"SLURM_NODEID": "1", "SLURM_LOCALID": "1"}, "SLURM_NODEID"),
        ({"SLURM_NODEID": "0", "SLURM_LOCALID": "0"}, "SLURM_LOCALID"),
    ],
)
def test_refuses_another_distribution_than_block(where: dict[str, str], name: str) -> None:
    (problem,) = refusal(find, view(**FIVE, **where))
    assert problem.name == name
    assert "--distribution=block" in problem.advice


def test_knows_block_distribution() -> None:
    assert find(view(**FIVE, SLURM_NODEID="0", SLURM_LOCALID="1"), 2222).rank == 1


@pytest.mark.parametrize(
    ("given", "job"),
    [
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, "Slurm job 4711.0"),
        ({"SLURM_JOB_ID": "4711"}, "Slurm job 4711"),
        ({"SLURM_STEP_ID": "0"}, ""),
        ({}, ""),
    ],
)
def test_names_the_job_and_its_step(given: dict[str, str], job: str) -> None:
    assert find(view(**THREE, **given), 2222).job == job


def test_reports_all_problems_together() -> None:
    bad = {"SLURM_PROCID": "x", "SLURM_STEP_NUM_TASKS": "y"}
    lists = {"SLURM_STEP_NODELIST": "n[", "SLURM_STEP_TASKS_PER_NODE": "z"}
    names = [problem.name for problem in refusal(find, view(**bad, **lists))]
    assert names == [
        "SLURM_STEP_NODELIST, entry 0",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
    ]


def compress(names: list[tuple[str, str]]) -> str:
    """Return a node list of prefixes and numbers, with consecutive numbers joined to ranges.

    It does not use the code under test, and works like Slurm's `scontrol show hostlist`.
    """
    entries = []
    for prefix, group in itertools.groupby(names, key=lambda name: name[0]):
        ranges: list[list[str]] = []
        for _, number in group:
            last = ranges[-1][-1] if ranges else ""
            if last and len(last) == len(number) and int(number) == int(last) + 1:
                ranges[-1] = [ranges[-1][0], number]
            else:
                ranges.append([number])
        inside = ",".join("-".join(dict.fromkeys(ends)) for ends in ranges)
        entries.append(f"{prefix}[{inside}]")
    return ",".join(entries)


PREFIXES = st.from_regex("[a-z]([a-z0-9-]{0,4}[a-z])?", fullmatch=True)
NUMBERS = st.builds(
    lambda number, width: str(number).zfill(width), st.integers(0, 1200), st.integers(1, 4)
)
RUNS = st.builds(
    lambda prefix, first, count: [
        (prefix, str(int(first) + i).zfill(len(first))) for i in range(count)
    ],
    PREFIXES,
    NUMBERS,
    st.integers(1, 12),
)
NAMES = st.lists(RUNS, min_size=1, max_size=5).map(lambda runs: list(itertools.chain(*runs)))


@given(NAMES)
def test_a_compressed_list_expands_to_what_it_was(names: list[tuple[str, str]]) -> None:
    assert expand_nodes(compress(names)) == [prefix + number for prefix, number in names]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_compressed_tasks_expand_to_what_they_were(tasks: list[int]) -> None:
    runs = [(count, len(list(group))) for count, group in itertools.groupby(tasks)]
    text = ",".join(f"{count}(x{nodes})" if nodes > 1 else str(count) for count, nodes in runs)
    assert expand_tasks(text) == tasks


@given(NAMES, st.data())
def test_what_is_accepted_survives_tf_config(
    names: list[tuple[str, str]], data: st.DataObject
) -> None:
    names = list(dict.fromkeys(names))
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(names), max_size=len(names)))
    rank = data.draw(st.integers(0, sum(tasks) - 1))
    found = check_any(
        find,
        view(
            SLURM_PROCID=str(rank),
            SLURM_STEP_NUM_TASKS=str(sum(tasks)),
            SLURM_STEP_NODELIST=compress(names),
            SLURM_STEP_TASKS_PER_NODE=",".join(map(str, tasks)),
        ),
    )
    expected = [
        f"{prefix}{number}:{8888 + place}"
        for (prefix, number), count in zip(names, tasks, strict=True)
        for place in range(count)
    ]
    assert found.spec.to_json() == {"worker": expected}
    assert found.rank == rank


TEXTS = st.text(st.sampled_from("n0123456789[]-,x() \n٣é"), max_size=40) | st.text()


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_any_step_is_resolved_or_refused(rank: str, count: str, nodes: str, tasks: str) -> None:
    check_any(
        find,
        view(
            SLURM_PROCID=rank,
            SLURM_STEP_NUM_TASKS=count,
            SLURM_STEP_NODELIST=nodes,
            SLURM_STEP_TASKS_PER_NODE=tasks,
        ),
    )


@given(TEXTS)
def test_any_list_is_expanded_or_refused(text: str) -> None:
    for expand in (expand_nodes, expand_tasks):
        try:
            assert len(expand(text)) <= MOST
        except SlurmListError as error:
            assert str(error).endswith(".")  # noqa: PT017 -- both outcomes are right


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["[" * 1_000_000, "n[1-2" * 200_000, "]" * 1_000_000])
def test_a_long_text_takes_no_long_time(text: str) -> None:
    assert expand_nodes(text) == [text]


@pytest.mark.timeout(10)
def test_a_list_with_too_many_commas_is_refused_at_once() -> None:
    with pytest.raises(SlurmListError, match="200001 entries"):
        expand_nodes("," * 200_000)
