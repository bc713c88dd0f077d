"""Whether a script has ended well after a failed fit, so that its next start begins anew."""

import pytest

SCRIPT = """
import keras, numpy as np

class Fails(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        raise ERROR

def fit(*callbacks):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0, callbacks=list(callbacks))

try:
    fit(Fails())
except ERROR:
    pass
"""


@pytest.mark.parametrize(
    ("error", "then", "has_ended"),
    [
        ("ValueError", "fit()", True),
        ("ValueError", "", False),
        ("KeyboardInterrupt", "fit()", False),
    ],
)
def test_a_fit_that_ends_well_says_that_an_earlier_error_is_got_over(
    starts, tmp_path, error, then, has_ended
):
    """After an interrupt, the user may want the fit to go on at the next start."""
    script, runs = tmp_path / "script.py", tmp_path / "runs"
    runs.mkdir()
    script.write_text(SCRIPT.replace("ERROR", error) + then)
    ended = starts.start(script, run_dir=runs)
    assert ended.code == 0, ended.output
    assert (runs / "worker-0/ENDED").exists() == has_ended
