"""A report of runs shows everything that they recorded, and names what is missing."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from noise import pictures

from cluster_trainer.builtin import predictions
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.report.__main__ import main
from cluster_trainer.results.event_file import EventFile

NASTY = """<script>alert("1")</script>'{{ 7*7 }}$x_1$&"""
ADDRESS = re.compile(r"""(?:src|href|action|data|url)\s*[=(]\s*["']?(?!data:|#)[^\s>]""")


class Page(HTMLParser):
    """A page as a browser reads it: its elements and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def run(tmp_path):
    """Return a function that makes a run's folder by name."""

    def make(name="first", **settings):
        folder = tmp_path / name
        chief = folder / "worker-0"
        chief.mkdir(parents=True)
        result = {"status": "done", "steps": 20, "settings": {"epochs": 2} | settings}
        result["versions"] = {"keras": "3"}
        (chief / "result.json").write_text(json.dumps(result))
        lines = [
            {"epoch": n, "step": 10 * n, "loss": 1 / n, "test_loss": None, "seconds": 2}
            for n in (1, 2)
        ]
        (chief / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return make


def page_of(*folders):
    assert main([str(folder) for folder in folders]) == 0
    name = "report.html" if len(folders) == 1 else "comparison.html"
    return (folders[0] / name).read_text()


def record(folder, seconds=100.0):
    """Add events, and event files, to a worker."""
    events = [
        {"time": 0.0, "state": "starting", "detail": "", "by": "entrypoint", "restarts": 0},
        {"time": 1.0, "state": "training", "detail": ""},
        {"time": seconds - 1, "epoch": 1, "step": 9, "seconds": {"calls": 50, "all": 99}},
        {"time": seconds, "state": "done", "detail": NASTY},
    ]
    folder.mkdir(exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    file = EventFile(folder / "tensorboard", begins_at=1)
    for step in (10, 20):
        file.scalars({"speed/examples_per_second": step, "learning_rate": 1 / step}, step)


def test_it_says_when_and_why_the_network_was_the_limit(run):
    folder = run()
    record(folder / "worker-0")
    with (folder / "worker-0/events.jsonl").open("a") as file:
        for time, reason in ((40.0, f"the network is the limit: {NASTY}"), (70.0, "")):
            file.write(json.dumps({"time": time, "network": reason}) + "\n")
    text = page_of(folder)
    page = Page(text)
    assert NASTY not in text
    assert "3 starts, ends and other events" in page.text
    assert re.search(r"40 s\s*worker-0\s*network\s*the network is the limit", page.text)
    assert re.search(r"70 s\s*worker-0\s*network\s*no longer the limit", page.text)
    assert f"The network is the limit: {NASTY}." in page.text  # below where the time went


def test_it_has_every_curve_the_timeline_and_where_the_time_went(run):
    folder = run()
    for worker in ("worker-0", "worker-1"):
        record(folder / worker)
    page = Page(page_of(folder))
    drawings = [given["aria-label"] for tag, given in page.tags if given.get("role") == "img"]
    assert drawings == [
        *("loss", "learning rate", "timeline", "examples per second", "where the time went"),
    ]
    assert "50.0 s" in page.text
    assert "moments of checkpoints: not recorded" in page.text
    assert re.search(r"last test loss\s*not finite", page.text)


def test_what_an_old_run_did_not_record_is_named(run):
    page = Page(page_of(run()))
    for title in ("timeline", "examples per second", "where the time went", "confusion matrix"):
        assert re.search(rf"{title}\s+not recorded: \w", page.text), title


def test_a_scripts_run_without_results_says_how_far_it_is_and_how_to_start_it_again(tmp_path):
    folder = tmp_path / "own"
    for worker in ("worker-0", "worker-1"):
        checkpoints = folder / worker / "fit-1/checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "00001200.2-0123456789abcdef.npz").touch()
    (folder / "cluster.json").write_text('{"settings": {"SCRIPT": "train.py"}}')
    page = Page(page_of(folder))
    assert "no end yet" in page.text
    assert re.search(r"script\s*train.py", page.text)
    assert re.search(r"fit-1: newest checkpoint\s*of step 1,200", page.text)
    assert re.search(
        r"confusion matrix\s+not recorded: a script's own `fit` leaves none", page.text
    )
    assert "SCRIPT=train.py make up-local" in page.text
    for worker in ("worker-0", "worker-1"):
        (folder / worker / "ENDED").touch()
    assert "the script has ended" in Page(page_of(folder)).text


def record_fits(folder, fits):
    """Add some fits of a script, of five epochs each, to a worker."""
    events = []
    for number in range(1, fits + 1):
        name, began = f"fit-{number}", 100.0 * number
        fit = folder / name
        fit.mkdir(parents=True)
        lines = [{"epoch": n, "step": 10 * n, "loss": number / n, "f1": n} for n in range(1, 6)]
        (fit / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        events += [
            {"time": began, "state": "training", "fit": name},
            {"time": began + 50, "epoch": 1, "seconds": {"calls": 40, "all": 50}, "fit": name},
            {"time": began + 60, "state": "running", "fit": name},
        ]
        file = EventFile(fit / "tensorboard", begins_at=1)
        tag = "seconds_per_step" if number == 2 else "examples_per_second"
        file.scalars({f"speed/{tag}": 4.0, "learning_rate": 0.1}, 10)
    events.append({"time": 100.0 * fits + 70, "state": "done"})
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))


def drawn(page):
    return [given["aria-label"] for tag, given in page.tags if given.get("role") == "img"]


def test_each_fit_of_a_script_has_its_curves_its_speed_and_its_time(tmp_path):
    record_fits(tmp_path / "own/worker-0", 3)
    text = page_of(tmp_path / "own")
    page = Page(text)
    of_fit = ["loss", "f1", "learning rate"]
    of_all = ["timeline", "examples per second", "where the time went"]
    speeds = ["examples per second", "steps per second", "examples per second"]
    in_parts = [one for speed in speeds for one in (speed, "where the time went")]
    assert drawn(page) == ["loss", "f1", *of_fit * 3, *of_all, *in_parts]
    headings = re.findall(r"<h3>(.*?)</h3>", text)
    assert headings == ["what each fit came to", "fit-1", "fit-2", "fit-3"]
    assert re.search(r"fit-3: last loss\s*0.6", page.text)
    assert re.search(r"own\s+done", page.text)


def test_one_fit_needs_no_name(tmp_path):
    record_fits(tmp_path / "own/worker-0", 1)
    text = page_of(tmp_path / "own")
    assert drawn(Page(text)) == [
        *("loss", "f1", "learning rate", "timeline", "examples per second", "where the time went"),
    ]
    assert "<h3>" not in text
    assert re.search(r"last loss\s*0.2", Page(text).text)


def test_of_many_fits_the_first_and_the_last_are_shown_by_themselves(tmp_path):
    record_fits(tmp_path / "own/worker-0", 30)
    text = page_of(tmp_path / "own")
    shown = [*range(1, 7), *range(25, 31)]
    headings = ["what each fit came to", *(f"fit-{number}" for number in shown)]
    assert re.findall(r"<h3>(.*?)</h3>", text) == headings
    assert "Of 30 fits the first 6 and the last 6" in Page(text).text


def test_fits_of_two_runs_are_compared_by_their_names(tmp_path):
    record_fits(tmp_path / "first/worker-0", 1)
    record_fits(tmp_path / "second/worker-0", 2)
    text = page_of(tmp_path / "first", tmp_path / "second")
    assert "first, train" in text
    assert "second, train" in text
    assert re.findall(r"<h3>(fit-.*?)</h3>", text) == ["fit-1", "fit-2"]


def tell(folder, rate, **more):
    """Write the description of a worker's first fit."""
    optimizer = {"class_name": "SGD", "config": {"name": "sgd", "learning_rate": rate}}
    about = {
        "script": {"path": "my/task.py", "arguments": 1},
        "workers": 1,
        "strategy": NASTY,
        "versions": {"keras": "3.1"},
        "settings": {"run_dir": str(folder), "checkpoint_steps": 7, "wire": None},
        "fit": {"optimizer": optimizer, "loss": NASTY, "epochs": 5, **more},
    }
    (folder / "fit-1/about.json").write_text(json.dumps(about))


def test_a_scripts_settings_versions_and_what_it_gave_its_fits_are_shown(tmp_path):
    record_fits(tmp_path / "own/worker-0", 2)
    tell(tmp_path / "own/worker-0", 0.1)
    text = page_of(tmp_path / "own")
    page = Page(text)
    assert "no result.json" not in page.text
    assert re.search(r'class="given"><th scope="row">checkpoint_steps</th><td>7</td>', text)
    assert re.search(r"keras</th><td>3.1</td>", text)
    assert re.search(r"optimizer: learning_rate\s*0.1", page.text)
    assert re.search(r"script\s*my/task.py", page.text)
    assert "TRAINER_CHECKPOINT_STEPS=7 IMAGE python my/task.py" in page.text
    assert NASTY in page.text
    assert "script" not in {tag for tag, _ in page.tags}


def test_what_scripts_gave_their_fits_is_compared_first(tmp_path):
    for name, rate in (("first", 0.1), ("second", 0.2)):
        record_fits(tmp_path / name / "worker-0", 1)
        tell(tmp_path / name / "worker-0", rate, seed=1)
    text = page_of(tmp_path / "first", tmp_path / "second")
    differing = text[text.index("What differs") : text.index("What it came to")]
    assert re.findall(r"<th scope=\"row\">(.*?)</th><td>(.*?)</td><td>(.*?)</td>", differing) == [
        ("optimizer: learning_rate", "0.1", "0.2")
    ]


def test_names_and_values_are_text_and_nothing_leaves_the_page(run):
    folder = run(NASTY.replace("/", "|"), model=NASTY)
    record(folder / "worker-0")
    (folder / "worker-0/metrics.jsonl").write_text(
        json.dumps({"epoch": 1, NASTY: 1.0, "_hidden": 2.0}) + "\n"
    )
    text = page_of(folder)
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "form", "base"}
    assert NASTY in page.text
    assert not [
        value for _, given in page.tags for name, value in given.items() if name[:2] == "on"
    ]
    assert not ADDRESS.search(re.sub(r"url\(#|xlink:href=\"#", "", text))


def test_runs_are_compared_by_what_differs_first(run):
    text = page_of(run("first", model="a", seed=1), run("second", model="b", seed=1))
    differing = text[text.index("What differs") : text.index("What it came to")]
    assert re.findall(r"<th scope=\"row\">(.*?)</th><td>(.*?)</td><td>(.*?)</td>", differing) == [
        ("model", "a", "b")
    ]
    assert "first, train" in text
    assert "second, train" in text


@pytest.fixture
def data():
    labels = np.arange(40) % 4
    inputs = np.zeros((40, 6, 6, 1), np.uint8)
    inputs[:, 0, 0, 0] = labels * 60
    test = Examples(inputs, labels)
    return DataSet("four", test, test, 4, ("a", "b", "c", NASTY))


def all_but_the_last(inputs, training):
    """Predict the right class of each example, but class 0 for the last class."""
    del training
    said = np.rint(inputs.numpy()[:, 0, 0, 0] * 255 / 60).astype(int) % 3
    return 9.0 * np.eye(4)[said]


def test_the_matrix_and_pictures_of_right_and_wrong(run, data):
    folder = run()
    predictions.write_predictions(all_but_the_last, data, folder / "worker-0")
    found = json.loads((folder / "worker-0/predictions.json").read_text())
    assert found["matrix"] == [[10, 0, 0, 0], [0, 10, 0, 0], [0, 0, 10, 0], [10, 0, 0, 0]]
    assert (found["examples"], found["total"]) == (40, 40)
    assert [one["label"] == one["said"] for one in found["pictures"]] == [False] * 6 + [True] * 6
    assert found["pictures"][0]["probability"] == pytest.approx(1 / (1 + 3 * np.exp(-9)), abs=1e-4)
    assert base64.b64decode(found["pictures"][0]["png"]).startswith(b"\x89PNG")
    page = Page(page_of(folder))
    assert "30 of 40 examples right, out of 40 to test" in page.text
    assert f"it is {NASTY}" in page.text
    shown = [given["src"] for tag, given in page.tags if tag == "img"]
    assert len(shown) == 12


def test_what_is_no_classifier_leaves_nothing_of_an_earlier_run(data, tmp_path):
    (tmp_path / "predictions.json").touch()
    predictions.write_predictions(lambda x, training: x, data, tmp_path)  # noqa: ARG005
    assert not (tmp_path / "predictions.json").exists()
    noise = DataSet("noise", pictures(8), pictures(8), None)
    predictions.write_predictions(all_but_the_last, noise, tmp_path)
    assert not (tmp_path / "predictions.json").exists()


def test_a_model_that_fails_costs_a_warning(data, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(predictions.log, "warning", lambda *given: warnings.append(given))

    def fails(inputs, training):
        raise RuntimeError(f"{inputs.shape} {training}")

    predictions.write_predictions(fails, data, tmp_path)
    assert len(warnings) == 1
    assert not (tmp_path / "predictions.json").exists()


def test_predictions_end_after_their_time(data, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "MAX_SECONDS", 0.0)
    predictions.write_predictions(all_but_the_last, data, tmp_path)
    found = json.loads((tmp_path / "predictions.json").read_text())
    assert (found["examples"], found["total"]) == (32, 40)
