"""The arguments of scripts' fits in a report, of one run and of several runs."""

import json

import pytest

from cluster_trainer.report.fits import RecordedFit
from cluster_trainer.report.given_to_fits import begun, begun_of_all
from cluster_trainer.report.repeat_command import again
from cluster_trainer.report.run import read_run

ADAM = {"class_name": "Adam", "config": {"name": "adam_3", "learning_rate": 0.10000000149011612}}


def fit_of(**what):
    return RecordedFit("fit-1", None, about={"fit": what})


@pytest.fixture
def run(tmp_path):
    """Return a function that makes and reads a script's run, with an about.json for each fit."""

    def make(name, *abouts, number_of_first=1):
        worker = tmp_path / name / "worker-0"
        worker.mkdir(parents=True)
        for number, about in enumerate(abouts, start=number_of_first):
            (worker / f"fit-{number}").mkdir()
            (worker / f"fit-{number}/about.json").write_text(json.dumps(about))
        return read_run(worker.parent)

    return make


def test_an_optimizer_is_its_class_and_its_configuration_without_the_name_that_is_counted():
    assert begun([fit_of(optimizer=ADAM)]) == [
        ("optimizer", ["Adam"]),
        ("optimizer: learning_rate", ["0.1"]),
    ]


def test_what_is_within_another_has_the_names_of_both():
    rate = {"class_name": "CosineDecay", "config": {"decay_steps": 100, "alpha": None}}
    inner = {"class_name": "SGD", "config": {"learning_rate": rate}}
    outer = {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": inner}}
    assert dict(begun([fit_of(optimizer=outer)])) == {
        "optimizer": ["LossScaleOptimizer"],
        "optimizer: inner_optimizer": ["SGD"],
        "optimizer: inner_optimizer: learning_rate": ["CosineDecay"],
        "optimizer: inner_optimizer: learning_rate: decay_steps": ["100"],
    }


def test_losses_and_metrics_of_several_outputs_are_read_at_a_glance():
    found = begun([fit_of(loss={"p": "mse", "q": ["a", "b"]}, metrics=[["a"], []], shuffle=False)])
    assert found == [
        ("loss: p", ["mse"]),
        ("loss: q", ["a, b"]),
        ("metrics", ['[["a"], []]']),
        ("shuffle", ["false"]),
    ]


def test_what_is_long_is_cut():
    ((_, (text,)),) = begun([fit_of(table=[*range(1000)])])
    assert len(text) == 201
    assert text.endswith("…")


def test_each_fit_has_a_column_and_what_none_was_given_no_row():
    fits = [fit_of(epochs=3, split=None), fit_of(epochs=4, seed=5), RecordedFit("fit-3", None)]
    assert begun(fits) == [("epochs", ["3", "4", "-"]), ("seed", ["-", "5", "-"])]


def test_of_runs_of_one_fit_each_the_fits_have_no_names(run):
    one, two = (run(name, {"fit": {"epochs": n}}) for n, name in enumerate(("a", "b")))
    assert begun_of_all([one, two, run("c")]) == [("epochs", ["0", "1", "not recorded"])]


def test_fits_of_several_are_compared_by_their_names(run):
    one = run("one", {"fit": {"epochs": 1}})
    two = run("two", {"fit": {"epochs": 1}}, {"fit": {"epochs": 2}})
    assert begun_of_all([one, two]) == [
        ("fit-1: epochs", ["1", "1"]),
        ("fit-2: epochs", ["-", "2"]),
    ]


def test_of_many_fits_the_first_and_the_last_are_compared(run):
    many = run("many", *({"fit": {"epochs": 1}} for _ in range(30)))
    names = [name for name, _ in begun_of_all([many])]
    assert names == [f"fit-{number}: epochs" for number in (*range(1, 7), *range(25, 31))]


def test_settings_and_versions_are_those_of_the_last_fit_that_was_begun(run):
    of_fits = [{"versions": {"keras": text}, "settings": {"wire": text}} for text in "12"]
    found = run("own", *of_fits, {})
    assert (found.versions, found.settings) == ({"keras": "2"}, {"wire": "2"})
    assert found.fits == ["fit-1", "fit-2"]


def test_the_command_has_the_settings_that_the_script_heeds_and_says_how_many_arguments(run):
    settings = {"run_dir": "/elsewhere", "checkpoint_steps": 7, "resume": "auto", "wire": None}
    about = {"settings": settings, "workers": 3, "versions": {"cluster-trainer": "0.1.0"}}
    found = again(run("a", about | {"script": {"path": "my/task.py", "arguments": 0}}))
    assert found.command.endswith("-e TRAINER_CHECKPOINT_STEPS=7 IMAGE python my/task.py")
    assert "addresses of 3 workers" in found.notes[1]
    assert not any("arguments" in note for note in found.notes)
    found = again(run("b", about | {"script": {"path": "my/task.py", "arguments": 2}}))
    assert any("2 were given, and are not recorded" in note for note in found.notes)


@pytest.mark.parametrize(
    "about",
    [
        {"fit": 3, "workers": "two", "settings": [], "versions": 1, "script": "x"},
        {"fit": {"optimizer": {"class_name": ["a"], "config": [1]}}, "script": {"path": 7}},
        {"fit": {"optimizer": {"class_name": {"a": 1}, "config": None}}, "workers": -1},
    ],
)
def test_an_about_of_any_form_is_read(run, about):
    found = run("odd", about)
    assert begun_of_all([found]) or found.unread
    assert again(found).notes


def test_a_name_that_is_no_text_hides_nothing(run):
    found = run("odd", {"fit": {"epochs": 1}, "script": {"path": "t\udc80.py"}})
    assert (found.script, found.unread) == ("t?.py", [])


def test_what_could_not_be_read_is_said(run, tmp_path):
    run("own", {"fit": {"epochs": 1}})
    (tmp_path / "own/worker-0/fit-1/about.json").write_text('{"fit": {"ep')
    found = read_run(tmp_path / "own")
    assert found.unread[0].startswith("worker-0/fit-1/about.json: no JSON, or not all of it")
    assert begun_of_all([found]) == []
