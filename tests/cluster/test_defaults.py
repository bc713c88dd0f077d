"""`make up-local` without any settings: two workers train on digits."""

import json
import os
import re

import pytest

from harness.board import open_board
from harness.waiting import wait_until

METRICS = {
    "epoch",
    "step",
    "loss",
    "accuracy",
    "test_loss",
    "test_accuracy",
    "test_examples",
    "examples_per_second",
    "seconds",
}
# The user of the results. Only root may choose another user.
USER = (12345, 23456) if os.getuid() == 0 else (os.getuid(), os.getgid())


@pytest.fixture(scope="module")
def defaults(run):
    return run(RUN_UID=USER[0], RUN_GID=USER[1], VERBOSE="").raise_unless_done()


def test_reads_handwritten_digits(defaults):
    assert defaults.metrics()[-1]["test_accuracy"] >= 0.97


def test_two_workers_take_part(defaults):
    assert [result["task"]["index"] for result in defaults.results()] == [0, 1]


def test_metrics_have_one_line_an_epoch_with_exactly_the_promised_names(defaults):
    lines = defaults.metrics()
    assert [line["epoch"] for line in lines] == list(range(1, len(lines) + 1))
    assert {frozenset(line) for line in lines} == {frozenset(METRICS)}


def test_result_holds_the_last_metrics(defaults):
    for worker, result in zip(defaults.workers, defaults.results(), strict=True):
        last = (worker / "metrics.jsonl").read_text().splitlines()[-1]
        assert result["metrics"] == json.loads(last)
        assert result["settings"]["dataset"] == "digits"
        assert "2.21.0" in result["versions"].values()


def lines_of(name, defaults):
    lines = (line.partition(" | ") for line in defaults.output.splitlines())
    return [line for worker, _, line in lines if worker == name]


# Lines about one worker alone, which appear only on a busy machine.
ITS_OWN = re.compile("waiting|loading digits|decoding pictures|hold the others up")


def test_the_chief_speaks_for_all_and_another_worker_at_its_end(defaults):
    epochs = len(defaults.metrics())
    assert sum("test accuracy" in line for line in lines_of("worker-0", defaults)) == epochs
    infos = [line for line in lines_of("worker-1", defaults) if " INFO " in line]
    (end,) = [line for line in infos if not ITS_OWN.search(line)]
    assert "done: results in" in end


def is_shown(line, worker, defaults):
    once = re.sub(rf"^([0-9:]{{8}} [A-Z]+) {worker.name} ", r"\1 ", line)
    return once in lines_of(worker.name, defaults)


def test_whole_output_of_each_worker_is_kept(defaults):
    epochs = len(defaults.metrics())
    for worker in defaults.workers:
        kept = (worker / "container.log").read_text().splitlines()
        assert "cluster-trainer" in kept[0]
        assert f"{worker.name} done" in kept[-1]
        for file in ("container.log", "train.log"):
            assert (worker / file).read_text().count("test accuracy") == epochs
    chief = (defaults.workers[0] / "container.log").read_text().splitlines()
    hidden = [line for line in chief if not is_shown(line, defaults.workers[0], defaults)]
    assert all(".cc:" in line for line in hidden)


def test_nothing_but_text_is_written_where_there_is_no_terminal(defaults):
    files = [file.read_text() for file in defaults.folder.glob("worker-*/*.log")]
    assert not {"\x1b", "\r", "\b"} & {*"".join([defaults.output, *files])}


def test_warnings_and_errors_are_shown_and_what_tensorflow_merely_notes_is_kept(start, tmp_path):
    lines = ["W0000 00:00:1.5 7 gpu.cc:1] no GPU", "E0000 00:00:1.5 7 rpc.cc:2] refused", "I am ok"]
    noted = "I0000 00:00:1.5 7 cpu_feature_guard.cc:3] rebuild it"  # on some processors
    overlay = tmp_path / "printing.yaml"
    said = json.dumps(["printf", "%s\\n", *lines, noted])
    overlay.write_text(f"services: {{worker-0: {{command: {said}}}}}\n")
    ended = start(WORKERS=1, OVERLAYS=overlay).end(60).raise_unless_done()
    assert [line for line in lines if f"worker-0 | {line}" not in ended.output.splitlines()] == []
    assert noted not in ended.output
    assert noted in (ended.folder / "worker-0/container.log").read_text().splitlines()


def test_says_where_model_metrics_and_logs_are(defaults):
    for part in ("worker-0/model.keras", "metrics.jsonl", "container.log", "test_accuracy"):
        assert f"{part}" in defaults.output.rpartition("cluster-trainer: done")[2]


def test_everything_belongs_to_the_given_user(defaults):
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in defaults.folder.rglob("*")}
    assert owners == {USER}


def test_latest_points_to_the_run(defaults):
    latest = defaults.folder.parent / "latest"
    assert latest.resolve() == defaults.folder
    assert latest.lstat().st_uid == USER[0]


def test_results_are_json_that_any_reader_takes(defaults):
    for worker in defaults.workers:
        # parse_constant is called for NaN and Infinity, which are not JSON.
        json.loads((worker / "result.json").read_text(), parse_constant=pytest.fail)


@pytest.fixture(scope="module")
def board(defaults, workbench, tmp_path_factory):
    output = tmp_path_factory.mktemp("board") / "output.log"
    with open_board(defaults.folder.parent, workbench.image, output) as opened:
        all_read = lambda: (  # noqa: E731
            len(opened.ask("data/plugin/scalars/tags") or {}) == 4
            and all(
                len(points_of(opened, defaults, part, metric)) == len(defaults.metrics())
                for part in ("train", "test")
                for metric in ("loss", "accuracy")
            )
        )
        wait_until(all_read, 120, "TensorBoard has read 4 runs", opened.output)
        yield opened


def points_of(board, run, part, metric):
    """Return a curve's steps and values that TensorBoard has read so far."""
    folder = f"{run.folder.name}/worker-0/tensorboard/{part}"
    curve = board.ask("data/plugin/scalars/scalars", run=folder, tag=f"epoch/{metric}")
    return [(step, value) for _, step, value in curve or ()]


def test_tensorboard_has_a_curve_of_every_metric_with_all_its_points(defaults, board):
    for metric in ("loss", "accuracy"):
        for part, name in (("train", metric), ("test", f"test_{metric}")):
            expected = [(line["step"], pytest.approx(line[name])) for line in defaults.metrics()]
            assert points_of(board, defaults, part, metric) == expected


def test_tensorboard_shows_each_run_once_and_each_workers_speed(defaults, board):
    tags = board.ask("data/plugin/scalars/tags")
    place = f"{defaults.folder.name}/worker"
    own = {f"{place}-{index}/tensorboard" for index in (0, 1)}
    assert {*tags} == own | {f"{place}-0/tensorboard/{part}" for part in ("train", "test")}
    for run in own:
        assert {"speed/examples_per_second", "speed/seconds_per_step"} <= {*tags[run]}
    # On a busy machine, there may also be texts about the network or a straggler.
    texts = board.ask("data/plugin/text/tags")[f"{place}-0/tensorboard"]
    assert [text for text in texts if text.startswith("starts/")] == ["starts/1"]
    assert "<title>TensorBoard</title>" in board.page()


def test_tensorboard_says_where_it_is_and_ends_by_ctrl_c(board):
    assert f"http://localhost:{board.port} " in board.output()
    assert board.press_ctrl_c() == 0
    assert "Traceback" not in board.output()
