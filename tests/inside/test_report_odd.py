"""A report of a run with broken files shows what can be read, and names the rest."""

import json
import random
from pathlib import Path

import pytest

from cluster_trainer.report.__main__ import main
from cluster_trainer.results.event_file import EventFile

RESULT = {"status": "done", "steps": 20, "workers": 1, "seconds": 3.5, "settings": {"epochs": 2}}
METRICS = [{"epoch": n, "step": 10 * n, "loss": 1 / n, "seconds": 2.0} for n in (1, 2)]
EVENTS = [
    {"time": 100.0, "state": "starting", "detail": "", "by": "entrypoint", "restarts": 0},
    {"time": 101.0, "state": "training", "detail": ""},
    {"time": 150.0, "epoch": 1, "step": 9, "seconds": {"calls": 40.0, "all": 45.0, "input": 1.0}},
    {"time": 190.0, "state": "done", "detail": ""},
]
PREDICTED = {"matrix": [[3, 1], [0, 4]], "classes": None, "total": 8, "examples": 8, "pictures": []}
NOT_READ = "What could not be read"
LONG = "[" * 100_000


def lines(values):
    return "".join(json.dumps(one) + "\n" for one in values)


@pytest.fixture
def worker(tmp_path):
    """The folder of a worker, without broken files."""
    folder = tmp_path / "first/worker-0"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(RESULT))
    (folder / "metrics.jsonl").write_text(lines(METRICS))
    (folder / "events.jsonl").write_text(lines(EVENTS))
    (folder / "predictions.json").write_text(json.dumps(PREDICTED))
    file = EventFile(folder / "tensorboard", begins_at=1)
    for step in (10, 20):
        file.scalars({"speed/examples_per_second": 5.0 * step, "learning_rate": 1 / step}, step)
    return folder


def page_of(worker: Path) -> str:
    assert main([str(worker.parent)]) == 0
    return (worker.parent / "report.html").read_text()


def test_of_a_run_that_is_as_it_should_be_nothing_is_said(worker, capsys):
    page = page_of(worker)
    assert NOT_READ not in page
    assert capsys.readouterr().err == ""
    assert page.count('role="img"') == 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("result.json", ""),
        ("result.json", "\0" * 512),
        ("result.json", json.dumps(RESULT)[:-9]),
        ("result.json", "[1, 2]"),
        ("result.json", '"done"'),
        ("result.json", LONG),
        ("result.json", '{"workers": "two", "settings": [], "versions": 3, "seconds": NaN}'),
        ("result.json", '{"status": {"a": 1}, "settings": {"epochs": NaN}, "workers": 1e999}'),
        ("result.json", '{"status": "done", "versions": {"keras": [1]}, "steps": -5}'),
        ("fit-1/about.json", ""),
        ("fit-1/about.json", '{"fit": {"epochs": 3'),
        ("fit-1/about.json", '{"fit": 3, "versions": "x", "settings": [1], "workers": 1.5}'),
        ("metrics.jsonl", lines(METRICS)[:-9]),
        ("metrics.jsonl", "epoch,loss\n1,0.5\n"),
        ("metrics.jsonl", '{"epoch": 1, "loss": "0.5"}\n'),
        ("metrics.jsonl", '{"epoch": NaN, "loss": 1}\n{"epoch": 1e9, "loss": 1}\n'),
        ("metrics.jsonl", f'{{"epoch": 1, "loss": 1{"0" * 400}}}\n'),
        ("metrics.jsonl", '{"epoch": 1, "loss": [[1, "x"]], "seconds": "long"}\n'),
        ("events.jsonl", lines(EVENTS)[:-9]),
        ("events.jsonl", '{"time": NaN, "state": "training"}\n'),
        ("events.jsonl", '{"time": 1e300, "state": "training"}\n'),
        ("events.jsonl", '{"time": 5, "state": ["training"], "epoch": [1], "detail": 7}\n'),
        ("events.jsonl", '{"time": 5, "epoch": {}, "seconds": {"all": "3", "sums": null}}\n'),
        ("events.jsonl", '{"time": 5, "seconds": 3}\n{"time": "6", "state": "done"}\n'),
        ("predictions.json", "["),
        ("predictions.json", "{}"),
        ("predictions.json", '{"matrix": [[1, 2]]}'),
        ("predictions.json", '{"matrix": [[1]], "total": 1, "pictures": [{}]}'),
        ("predictions.json", '{"matrix": [[Infinity]], "total": 1, "pictures": []}'),
        ("predictions.json", '{"matrix": [[1, 2]], "total": 1, "pictures": []}'),
        ("predictions.json", f'{{"matrix": [[1{"0" * 400}]], "total": 1, "pictures": []}}'),
        (
            "predictions.json",
            '{"matrix": [[1]], "classes": ["a", "b"], "total": 1, "pictures": []}',
        ),
        ("predictions.json", '{"matrix": [[1]], "total": Infinity, "pictures": []}'),
        ("../cluster.json", '{"settings": "WORKERS=2"}'),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_the_page_is_written_and_says_what_could_not_be_read(worker, capsys, name, text):
    (worker / "fit-1").mkdir()
    (worker / name).write_text(text)
    page = page_of(worker)
    said = capsys.readouterr().err
    file = name.removeprefix("../") if name.startswith("..") else f"worker-0/{name}"
    assert f"not read: first/{file}: " in said
    assert f"{file}: " in page[page.index(NOT_READ) : page.index("What it came to")]


NUMBERS = (0, -1, 5e-324, 1e-300, 1e99, -1e99, 2**53, 3, 3.5)


def test_numbers_of_any_size_are_drawn(worker):
    (worker / "metrics.jsonl").write_text(
        lines({"epoch": n + 1, "a": one, "b": 5e-324, "c": 1e99} for n, one in enumerate(NUMBERS))
    )
    file = EventFile(worker / "tensorboard", begins_at=1)
    for step, one in enumerate(NUMBERS, start=1):
        file.scalars({"learning_rate": max(min(one, 3e38), -3e38)}, step)
    times = (0, 1e-9, 1, 1.7e9, 253_402_300_799)
    (worker / "events.jsonl").write_text(
        lines(
            {"time": one, "state": "training", "seconds": {"all": abs(size), "calls": 5e-324}}
            for one, size in zip(times, NUMBERS, strict=False)
        )
    )
    assert NOT_READ not in page_of(worker)


def test_a_number_that_is_too_large_to_be_drawn_is_said_and_leaves_its_epoch_out_of_no_curve(
    worker,
):
    epochs = [{"loss": 1e150, "mae": 1e200}, {"loss": 2.0, "mae": -1e200}, {"loss": 3.0}]
    (worker / "metrics.jsonl").write_text(
        lines({"epoch": number, "auc": 0.5, **one} for number, one in enumerate(epochs, start=1))
    )
    page = page_of(worker)
    assert NOT_READ not in page
    assert 'aria-label="loss"' in page
    assert 'aria-label="auc"' in page
    assert "not drawn: 1 of more than 1e+100" in page
    assert "not drawn: 2 of more than 1e+100" in page  # of mae, which has no others


def test_points_that_are_no_numbers_are_said_and_left_out(worker):
    file = EventFile(worker / "tensorboard", begins_at=21)
    for step, one in enumerate((float("nan"), float("inf"), 7.0), start=30):
        file.scalars({"speed/examples_per_second": one}, step)
    assert "speed/examples_per_second: 2 points are no finite numbers" in page_of(worker)


@pytest.mark.parametrize("content", [b"", b"no record at all", b"\x18" + b"\0" * 300, None])
def test_an_event_file_that_is_none_does_not_hide_the_others(worker, content):
    broken = worker / "tensorboard/events.out.tfevents.0000000001.other.1"
    if content is None:  # a truncated file
        (whole,) = worker.glob("tensorboard/events*")
        content = whole.read_bytes()[:-20]
        whole.unlink()
    broken.write_bytes(content)
    assert 'aria-label="learning rate"' in page_of(worker)


ODD = (
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "x",
    [],
    {},
    [[1]],
    {"a": []},
)
NAMES = ("time", "state", "detail", "seconds", "epoch", "step", "loss", "workers", "settings", "by")
NAMES += ("versions", "matrix", "classes", "total", "pictures", "restarts", "status", "script")
NAMES += ("fit", "optimizer", "class_name", "config")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_in_the_files_there_is_a_page(worker, seed):
    chance = random.Random(seed)

    def line():
        given = {name: chance.choice(ODD) for name in chance.sample(NAMES, 6)}
        usual = chance.choice([*METRICS, *EVENTS, RESULT, PREDICTED, {}])
        return {**usual, **given} if chance.random() < 0.5 else {**given, **usual}

    (worker / "fit-1").mkdir()
    for name in ("result.json", "predictions.json", "fit-1/about.json"):
        (worker / name).write_text(json.dumps(line()))
    for name in ("metrics.jsonl", "events.jsonl"):
        (worker / name).write_text(lines(line() for _ in range(8)))
    page_of(worker)


def test_of_two_runs_each_says_its_own(worker):
    other = worker.parent.parent / "second/worker-0"
    other.mkdir(parents=True)
    (other / "result.json").write_text("{")
    assert main([str(worker.parent), str(other.parent)]) == 0
    page = (worker.parent / "comparison.html").read_text()
    part = page[page.index(NOT_READ) : page.index("What it came to")]
    assert "<h3>second</h3>" in part
    assert "<h3>first</h3>" not in part
