"""TF_CONFIG is checked, completed and passed on, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.errors import ConfigurationError, render
from entrypoint.settings.environ import Environ, Value
from entrypoint.sources import tf_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '{"cluster":{"worker":["a:1","b:2"]},"task":{"type":"worker","index":0}}',
            {
                "cluster": {"worker": ["a:1", "b:2"]},
                "task": {"type": "worker", "index": 0},
            },
            id="as it is",
        ),
        pytest.param(
            '{"cluster":{"worker":["a:1","b:2"]},"task":{"type":"worker","index":"1"}}',
            {
                "cluster": {"worker": ["a:1", "b:2"]},
                "task": {"type": "worker", "index": 1},
            },
            id="index as text",
        ),
        pytest.param(
            '{"cluster":{"worker":["b:2"],"master":["a:1"]},"task":{"type":"master","index":0}}',
            {
                "cluster": {"chief": ["a:1"], "worker": ["b:2"]},
                "task": {"type": "chief", "index": 0},
            },
            id="master is chief",
        ),
        pytest.param(
            '{"cluster":{"chief":["a:1"],"worker":["b:2"]},'
            '"task":{"type":"worker","index":0,"trial":"7"},"environment":"cloud","x":[1.5,null]}',
            {
                "cluster": {"chief": ["a:1"], "worker": ["b:2"]},
                "task": {"type": "worker", "index": 0, "trial": "7"},
                "environment": "cloud",
                "x": [1.5, None],
            },
            id="extra keys are kept",
        ),
        pytest.param(
            '{"cluster":{"worker":{"1":"b:2","0":"a:1"}},"task":{"type":"worker","index":1}}',
            {
                "cluster": {"worker": ["a:1", "b:2"]},
                "task": {"type": "worker", "index": 1},
            },
            id="dict of all indices",
        ),
        pytest.param(
            '{"cluster":{"worker":{"1":"h:1"}},"task":{"type":"worker","index":1}}',
            {
                "cluster": {"worker": {"1": "h:1"}},
                "task": {"type": "worker", "index": 1},
            },
            id="sparse dict",
        ),
        pytest.param(
            '{"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":0}}',
            {
                "cluster": {"worker": ["a:1"]},
                "task": {"type": "evaluator", "index": 0},
            },
            id="evaluator beside the cluster",
        ),
        pytest.param(
            '{"cluster":{"worker":["a:1"],"evaluator":["e:1"]},"task":{"type":"evaluator","index":0}}',
            {
                "cluster": {"worker": ["a:1"]},
                "task": {"type": "evaluator", "index": 0},
            },
            id="evaluator is taken out of the cluster",
        ),
        pytest.param(
            '{"cluster":{"chief":["a"],"worker":[]},"task":{"type":"chief","index":0}}',
            {
                "cluster": {"chief": ["a:2222"]},
                "task": {"type": "chief", "index": 0},
            },
            id="port is completed, empty type left out",
        ),
    ],
)
def test_accepts(answer: Callable, text: str, expected: dict[str, object]) -> None:
    assert json.loads(answer({"TF_CONFIG": text}).tf_config_text) == expected


TASK = '"task":{"type":"worker","index":0}'
ONE = '"cluster":{"worker":["a:1"]}'


def cluster(text: str) -> str:
    """Return a document with this cluster, for worker 0."""
    return f'{{"cluster":{text},{TASK}}}'


def task(text: str) -> str:
    """Return a document with this task in a cluster of one worker."""
    return f'{{{ONE},"task":{text}}}'


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "", "not JSON"),
        ("{", "", "not JSON"),
        ("worker", "", "not JSON"),
        ("[]", "", "not an object"),
        ("null", "", "not an object"),
        ("NaN", "", "NaN is not a JSON number"),
        ('{"cluster":{},"cluster":{}}', "", 'the key "cluster" twice'),
        (f'{{{ONE},{TASK},"x":1e999}}', "", "too large"),
        (f'{{{ONE},{TASK},"x":{"9" * 5000}}}', "", "too large"),
        (f'{{{ONE},{TASK},"x":{"[" * 100_000}{"]" * 100_000}}}', "", "levels deep"),
        (f'{{{ONE},{TASK},"x":{"[" * 40}{"]" * 40}}}', "", "levels deep"),
        (f"{{{ONE}}}", "task", "an object such as"),
        (task("[]"), "task", "an object such as"),
        (f"{{{TASK}}}", "cluster", "an object such as"),
        (cluster("{}"), "cluster", "an object such as"),
        (cluster('["a:1"]'), "cluster", "an object such as"),
        (cluster('{"worker":[]}'), "cluster", "at least one"),
        (cluster('{"worker":"a:1"}'), "cluster.worker", "a list"),
        (cluster('{"worker":["a:1"],"ps":["b:1"]}'), "cluster.ps", "Param"),
        (cluster('{"worker":["a:1"],"w":["b:1"]}'), "cluster.w", "types"),
        (cluster('{"worker":["a:1"],"chief":["b:1","c:1"]}'), "cluster.chief", "one chief"),
        (
            cluster('{"chief":["a:1"],"master":["b:1"],"worker":["c:1"]}'),
            "cluster.master",
            "one chief",
        ),
        (cluster('{"worker":["a:1","a:1"]}'), "cluster", "each address once"),
        (cluster('{"worker":["a:1"],"chief":["a:1"]}'), "cluster", "chief-0 and worker-0"),
        (cluster('{"worker":["a:1","localhost:1"]}'), "cluster", "loopback"),
        (cluster('{"worker":[""]}'), "cluster.worker[0]", "host is missing"),
        (cluster('{"worker":["a:1",":1"]}'), "cluster.worker[1]", "host is missing"),
        (cluster('{"worker":["a:0"]}'), "cluster.worker[0]", "port"),
        (cluster('{"worker":["a:70000"]}'), "cluster.worker[0]", "port"),
        (cluster('{"worker":[7]}'), "cluster.worker[0]", "host:port"),
        (cluster('{"worker":["\\ud800:1"]}'), "cluster.worker[0]", "neither"),
        (cluster('{"worker":["\\u0000:1"]}'), "cluster.worker[0]", "neither"),
        (cluster('{"worker":{"0":"a:1","x":"b:1"}}'), "cluster.worker[x]", "each index once"),
        (cluster('{"worker":{"0":"a:1","00":"b:1"}}'), "cluster.worker[00]", "each index once"),
        (task('{"type":"worker","index":1}'), "task.index", "0 to 0"),
        (task('{"type":"worker","index":-1}'), "task.index", "from 0"),
        (task('{"type":"worker","index":true}'), "task.index", "from 0"),
        (task('{"type":"worker","index":0.0}'), "task.index", "from 0"),
        (task('{"type":"worker"}'), "task.index", "from 0"),
        (task('{"type":"worker","index":999999999999999999}'), "task.index", "from 0"),
        (task('{"type":"boss","index":0}'), "task.type", "evaluator"),
        (task('{"type":["worker"],"index":0}'), "task.type", "evaluator"),
        (task('{"type":"ps","index":0}'), "task.type", "Parameter servers"),
        (task('{"type":"chief","index":0}'), "task.type", "in the cluster: worker"),
    ],
)
def test_refuses(refused: Callable, text: str, place: str, says: str) -> None:
    (problem,) = refused({"TF_CONFIG": text})
    assert problem.name == f"TF_CONFIG {place}".strip()
    assert says in f"{problem.accepted} {problem.advice}"


def test_reports_all_problems_together(refused: Callable) -> None:
    text = '{"cluster":{"worker":["a:0","b"],"ps":[]},"task":{"type":"worker","index":7}}'
    names = [problem.name for problem in refused({"TF_CONFIG": text})]
    assert names == ["TF_CONFIG cluster.worker[0]", "TF_CONFIG task.index"]


def test_a_wrong_address_of_the_task_itself_is_one_problem(refused: Callable) -> None:
    text = '{"cluster":{"worker":["a:1","b:0"]},"task":{"type":"worker","index":1}}'
    (problem,) = refused({"TF_CONFIG": text})
    assert problem.name == "TF_CONFIG cluster.worker[1]"


def find(text: str) -> object:
    return tf_config.find(Environ({"TF_CONFIG": Value(text, "environment")}), 2222)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
ADDRESS = st.sampled_from(["a:1", "b:2", "10.0.0.1", "[::2]:3", "localhost:1", "", ":1", "a:0"])
ENTRIES = st.one_of(
    st.lists(ADDRESS | SCALARS, max_size=3),
    st.dictionaries(st.sampled_from(["0", "1", "2", "x", "-1", "00"]), ADDRESS, max_size=3),
    SCALARS,
)
TYPES = st.sampled_from(["chief", "master", "worker", "evaluator", "ps", "boss"])
NEAR_MISSES = st.fixed_dictionaries(
    {
        "cluster": st.dictionaries(TYPES, ENTRIES, max_size=3) | ANYTHING,
        "task": st.fixed_dictionaries(
            {"type": TYPES | SCALARS, "index": st.integers(-1, 3) | st.sampled_from(["0", "1"])},
        )
        | ANYTHING,
    },
    optional={"environment": ANYTHING},
)


@given(ANYTHING | NEAR_MISSES)
def test_any_document_is_refused_or_survives(document: object) -> None:
    try:
        found = find(json.dumps(document))
    except ConfigurationError as error:
        render(error.problems).encode()
    else:
        assert find(found.tf_config_text()) == found


JOB = st.integers(1, 4).map(lambda count: [f"10.0.0.{i + 1}:1" for i in range(count)])


@given(st.data(), JOB, st.booleans(), st.dictionaries(st.text(), st.text(), max_size=2))
def test_right_documents_are_accepted(
    data: st.DataObject,
    workers: list[str],
    chief: bool,  # noqa: FBT001
    extra: dict[str, str],
) -> None:
    cluster = {"chief": ["h:1"], "worker": workers} if chief else {"worker": workers}
    task_type = data.draw(st.sampled_from([*cluster, "evaluator"]))
    index = data.draw(st.integers(0, len(cluster.get(task_type, [1])) - 1))
    document = extra | {"cluster": cluster, "task": {"type": task_type, "index": index}}
    assert find(json.dumps(document)).tf_config() == document


@given(st.text() | st.binary().map(lambda data: data.decode(errors="surrogateescape")))
def test_any_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        find(text)
