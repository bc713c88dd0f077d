import json

import pytest

from cluster_trainer import this_worker
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.task import (
    Task,
    as_started,
    from_environment,
    may_be_fewer,
    names_of,
)

TWO = {"worker": ["a:2222", "b:2222"]}
WITH_CHIEF = {"chief": ["c:2222"], "worker": ["a:2222"]}


def read(cluster, kind, index):
    document = {"cluster": cluster, "task": {"type": kind, "index": index}}
    return from_environment({"TF_CONFIG": json.dumps(document)})


def test_without_tf_config_there_is_one_worker():
    assert from_environment({}) == Task("worker", 0, 1)
    assert from_environment({}).is_chief


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "expected"),
    [
        (TWO, "worker", 0, ("worker-0", 2, True)),
        (TWO, "worker", "1", ("worker-1", 2, False)),
        (WITH_CHIEF, "chief", 0, ("chief-0", 2, True)),
        (WITH_CHIEF, "worker", 0, ("worker-0", 2, False)),
        ({"master": ["c:1"], "worker": ["a:1"]}, "master", 0, ("chief-0", 2, True)),
        ({"worker": {"0": "a:1", "2": "b:1"}}, "worker", 2, ("worker-2", 2, False)),
    ],
)
def test_reads_the_task(cluster, kind, index, expected):
    task = read(cluster, kind, index)
    assert (task.name, task.num_workers, task.is_chief) == expected
    assert task.trains


def test_a_script_may_ask_which_worker_it_is(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert this_worker() == Task("worker", 0, 1)
    document = {"cluster": TWO, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(document))
    one = this_worker()
    assert (one.name, one.rank, one.num_workers, one.is_chief) == ("worker-1", 1, 2, False)


def test_a_scripts_own_tf_config_does_not_change_who_this_worker_is():
    start = json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 1}})
    own = json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 0}})
    for text in ("", "{", json.dumps({"cluster": TWO}), own):
        found = as_started({"TF_CONFIG": text, "A": "b"}, start)
        assert (from_environment(found).name, found["A"]) == ("worker-1", "b")
    assert from_environment(as_started({}, start)).name == "worker-1"


@pytest.mark.parametrize("start", ["", "{"])
def test_a_scripts_own_counts_where_it_was_started_with_none(start):
    own = json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 0}})
    assert as_started({"TF_CONFIG": own}, start) == {"TF_CONFIG": own}


def test_an_evaluator_does_not_train():
    assert not read(TWO, "evaluator", 0).trains


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", "3", '{"task": 1}', '{"task": {"type": "w"}}'),
        *('{"task": {"type": "w", "index": 1e999}}', '{"task": {"type": "w", "index": -1}}'),
        '{"task": {"type": "../w", "index": 0}}',
    ],
)
def test_refuses_what_is_not_tf_config_and_does_not_repeat_it(text):
    with pytest.raises(ConfigurationError, match="TF_CONFIG") as caught:
        from_environment({"TF_CONFIG": text})
    assert caught.value.problems[0].received == f"({len(text)} characters, not shown)"


@pytest.mark.parametrize(
    ("kind", "index", "has_chief_task", "rank"),
    [
        ("worker", 0, False, 0),
        ("worker", 2, False, 2),
        ("chief", 0, True, 0),
        ("worker", 0, True, 1),
        ("worker", 2, True, 3),
    ],
)
def test_the_rank_counts_the_chief_first(kind, index, has_chief_task, rank):
    task = Task(kind, index, num_workers=4, has_chief_task=has_chief_task)
    assert task.rank == rank
    assert task.name_of(rank) == task.name


def test_messages_name_the_workers_as_their_logs_do(monkeypatch):
    hosts = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    for kind, index in (("chief", 0), ("worker", 1)):
        document = {"cluster": hosts, "task": {"type": kind, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(document))
        assert names_of([0, 2, 1]) == ["chief-0", "worker-1", "worker-0"]


@pytest.mark.parametrize(
    ("least", "expected"),
    [(None, False), ("", False), ("2", True), (" 2 ", True), ("3", False), ("4", False)],
)
def test_fewer_workers_may_go_on_where_min_workers_says_so(least, expected):
    environ = {} if least is None else {"MIN_WORKERS": least}
    assert may_be_fewer(environ, 3) is expected
