"""The record of the machines that a project's cluster is on."""

import argparse
import json
from dataclasses import replace

import pytest

from local_cluster import main
from local_cluster.messages import EndError
from machines import cluster_record, settings
from machines.cluster_record import Kept
from machines.hosts_setting import parse


@pytest.fixture
def environ(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "RUNS_DIR": str(tmp_path / "runs")}


@pytest.fixture
def cluster(tmp_path):
    hosts = tuple(parse(["ana@m1 gpus=0,1 data='/a b'", "ana@m2:2200 port=7"]))
    folders = ("/home/ana/cluster-trainer", "/data/x")
    return Kept("cluster-trainer", hosts, "first", str(tmp_path / "runs"), folders)


def test_what_is_kept_is_read_again(environ, cluster):
    assert cluster_record.read(environ) is None
    cluster_record.write(cluster, environ)
    assert cluster_record.read(environ) == cluster
    assert cluster_record.read({**environ, "COMPOSE_PROJECT_NAME": "other"}) is None
    cluster_record.forget(environ)
    assert cluster_record.read(environ) is None


def test_a_watcher_is_told_when_it_changes(environ, cluster):
    cluster_record.write(cluster, environ)
    is_current = cluster_record.is_current(environ)
    assert is_current()
    cluster_record.forget(environ)
    assert not is_current()


def test_no_container_can_write_where_it_is_kept(environ, cluster, tmp_path):
    cluster_record.write(cluster, environ)
    assert tmp_path / "runs" not in cluster_record.file_of(environ).parents


DAMAGED = [
    *("", "[]", "null", "5", "[" * 100_000, '{"hosts": ["a;b"]}', '{"hosts": 1, "run": ""}'),
    '{"hosts": [1], "folders": ["/x"], "run": "a", "runs": "/r"}',
    '{"hosts": ["a;b"], "folders": ["/x"], "run": "a", "runs": "/r"}',
    '{"hosts": ["a"], "folders": [], "run": "a", "runs": "/r"}',
    '{"hosts": ["a"], "folders": ["/x"], "run": 5, "runs": "/r"}',
    '{"hosts": ["a"], "folders": ["/x"], "run": "a", "runs": "/r", "removed": [[]]}',
    '{"hosts": ["a"], "folders": ["/x"], "run": "a", "runs": "/r", "start": 5}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_what_cannot_be_read_is_refused_with_its_place(environ, cluster, content):
    cluster_record.write(cluster, environ)
    cluster_record.file_of(environ).write_text(content)
    with pytest.raises(EndError) as caught:
        cluster_record.read(environ)
    assert caught.value.code == 78
    assert str(cluster_record.file_of(environ)) in caught.value.sentences[0]


def test_a_record_of_an_earlier_version_is_read(environ, cluster):
    cluster_record.write(cluster, environ)
    found = json.loads(cluster_record.file_of(environ).read_text())
    del found["is_started"], found["removed"], found["start"]
    cluster_record.file_of(environ).write_text(json.dumps(found))
    assert cluster_record.read(environ) == cluster


def test_one_command_at_a_time_changes_a_cluster(environ, cluster):
    cluster_record.write(cluster, environ)
    with (
        cluster_record.held(cluster, environ),
        pytest.raises(EndError),
        cluster_record.held(cluster, environ),
    ):
        pass
    with cluster_record.held(cluster, environ):
        pass


def test_a_cluster_that_has_changed_since_it_was_read_is_left_alone(environ, cluster):
    cluster_record.write(replace(cluster, run="second"), environ)
    with pytest.raises(EndError), cluster_record.held(cluster, environ):
        pass


def test_a_local_cluster_is_not_started_beside_it(environ, cluster):
    cluster_record.write(cluster, environ)
    given = argparse.Namespace(command="up")
    with pytest.raises(EndError, match="ana@m1, ana@m2"):
        main.run(given, environ, environ)


@pytest.mark.parametrize("command", ["attach", "fetch", "replace"])
def test_without_one_there_is_nothing_to_look_at(environ, command):
    with pytest.raises(EndError, match="no cluster on other machines"):
        main.run(argparse.Namespace(command=command), environ, environ)


@pytest.mark.parametrize("name", ["WORKERS", "NETWORK", "DATA_DIR", "RUN_UID", "WORKER_3_GPUS"])
def test_what_decides_a_local_cluster_only_is_refused(environ, cluster, now, name):
    with pytest.raises(EndError) as caught:
        settings.read({**environ, name: "1"}, cluster.hosts, now)
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"{name}: ")


def test_what_a_run_is_started_with_is_enough_to_resume_it(environ, cluster, now):
    chosen = settings.read({**environ, "TRAINER_EPOCHS": "3"}, cluster.hosts, now)
    assert (chosen.workers, chosen.network) == (2, "host")
    decided = settings.settled(chosen, cluster.hosts)
    assert tuple(parse(decided["HOSTS"].splitlines())) == cluster.hosts
    again = settings.read({**environ, **decided}, cluster.hosts, now)
    assert again == chosen
