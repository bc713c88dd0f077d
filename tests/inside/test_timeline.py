"""The notes of a fit in the journal of a run, beside its states."""

import keras
import pytest

from cluster_trainer.callbacks.recording.timeline import Timeline
from cluster_trainer.checkpoints.checkpoint import Place


class Book:
    def __init__(self):
        self.reasons = []

    def network(self, reason):
        self.reasons.append(reason)


@pytest.mark.parametrize(
    ("reasons", "noted"),
    [
        (["", "60 %", "70 %", "", "", "50 %"], ["60 %", "", "50 %"]),
        (["", ""], []),
    ],
)
def test_the_network_is_noted_where_it_becomes_the_limit_and_where_it_no_longer_is(reasons, noted):
    book, left = Book(), list(reasons)
    timeline = Timeline(book, Place, lambda: 0.0, network=lambda: left[0])
    timeline.set_model(keras.Sequential())
    while left:
        timeline.on_train_batch_begin(0)
        timeline.on_train_batch_end(0)
        del left[0]
    assert book.reasons == noted
