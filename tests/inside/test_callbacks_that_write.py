"""On two workers of a ring, only the chief's `fit` writes and prints."""

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from boards import read, steps
from meeting_place import MeetingPlace

from cluster_trainer.engine.progress_bar import PLAIN

SCRIPT = """
import json, os, sys
import keras, numpy as np

folder, url = sys.argv[1:]
RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
rows = np.random.default_rng(0).random((32, 3), np.float32)
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")

def fit(verbose, **more):
    print(f"FIT {verbose}", flush=True)
    history = model.fit(rows, rows[:, :1], batch_size=8, epochs=2, verbose=verbose, **more).history
    print(f"ENDED {len(history['loss'])}", flush=True)

fit("auto", callbacks=[
    keras.callbacks.TensorBoard(f"{folder}/board-{RANK}"),
    keras.callbacks.RemoteMonitor(url, send_as_json=True),
])
fit(1)
fit(2)
"""


class Posts(BaseHTTPRequestHandler):
    """Keeps the JSON of each post."""

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.posts.append(json.loads(self.rfile.read(length)))
        self.send_response(HTTPStatus.OK)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def server():
    """A server on this machine that keeps all posts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Posts) as server:
        server.posts = []
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


@pytest.fixture(scope="module")
def printed(server, folder):
    """The output of each worker in each fit, by the fit's `verbose`."""
    script, url = folder / "script.py", f"http://127.0.0.1:{server.server_port}"
    script.write_text(SCRIPT)
    with MeetingPlace(folder / "run", 2, str(script), str(folder), url) as place:
        assert place.wait() == [0, 0], place.logs
        return [fits_in(worker.log.read_text()) for worker in place.workers]


def fits_in(log):
    fits = [one.partition("\nENDED 2\n") for one in log.split("FIT ")[1:]]
    assert all(ended for _, ended, _ in fits), log
    return dict(said.partition("\n")[::2] for said, _, _ in fits)


@pytest.mark.parametrize("verbose", ["auto", 1, PLAIN])
def test_the_chief_prints_the_epochs_and_the_other_worker_none(printed, verbose):
    chief, other = (fits[str(verbose)] for fits in printed)
    assert [chief.count(f"Epoch {number}/2") for number in (1, 2)] == [1, 1], chief
    assert chief.count(" - loss: ") == 2, chief
    assert "Epoch" not in other
    assert "loss" not in other


@pytest.mark.usefixtures("printed")
def test_tensorboard_has_one_folder(folder):
    assert [one.name for one in folder.glob("board-*")] == ["board-0"]
    assert steps(read(folder / "board-0/train")["epoch_loss"]) == [0, 1]


@pytest.mark.usefixtures("printed")
def test_a_remote_monitor_hears_of_each_epoch_once(server):
    assert [post["epoch"] for post in server.posts] == [0, 1]
    assert all(post["loss"] > 0 for post in server.posts)
