"""The batches that all workers read: their order, and the return of a fit to its place."""

import keras
import numpy as np
import pytest

from cluster_trainer.on_jax.steps.batches import EpochIterator, GlobalBatches, digest_of, order_of
from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import ConfigurationError

X = np.arange(10, dtype="float32")[:, None]


class Shuffling(keras.utils.PyDataset):
    """Has batches whose order and content depend on its own state."""

    def __init__(self):
        super().__init__()
        self.draws, self.rows = np.random.default_rng(4), np.arange(10)

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return X[self.rows[index * 5 : index * 5 + 5]] + self.draws.normal(), X[:5]

    def on_epoch_end(self):
        self.draws.shuffle(self.rows)


def generated():
    draws = np.random.default_rng(4)
    while True:
        yield X + draws.normal(), X


def iterator_of(x, y=None, steps=None, **options):
    options = {"shuffle": True} | options
    adapter = keras_jax_names.get_data_adapter(x=x, y=y, steps_per_epoch=steps, **options)
    iterator = EpochIterator(GlobalBatches(adapter, seed=7), steps_per_epoch=steps)
    iterator.reset()
    return iterator


def epoch_of(iterator):
    return [next(reader) for _, _, reader in iterator]


def firsts_of(batches):
    return [np.asarray(batch[0]).tolist() for batch in batches]


SOURCES = {
    "arrays": lambda: iterator_of(X, X, batch_size=3),
    "arrays, more steps": lambda: iterator_of(X, X, batch_size=3, steps=3),
    "dataset": lambda: iterator_of(Shuffling()),
    "generator": lambda: iterator_of(generated(), steps=2, shuffle=False),
}


def test_an_order_depends_on_seed_and_pass_alone():
    assert order_of(1, 2, 50).tolist() == order_of(1, 2, 50).tolist()
    assert order_of(1, 2, 50).tolist() != order_of(1, 3, 50).tolist()
    assert order_of(1, 2, 50).tolist() != order_of(2, 2, 50).tolist()
    assert sorted(order_of(1, 2, 50)) == [*range(50)]


def test_a_pass_has_each_example_once_and_a_smaller_last_batch():
    batches = epoch_of(SOURCES["arrays"]())
    assert [len(batch[0]) for batch in batches] == [3, 3, 3, 1]
    assert sorted(np.concatenate([batch[0][:, 0] for batch in batches])) == [*range(10)]


def test_class_weights_become_weights_of_the_examples():
    labels = np.array([0, 1] * 5)
    batches = epoch_of(iterator_of(X, labels, class_weight={0: 1.0, 1: 3.0}))
    for _, given, weights in batches:
        assert weights.tolist() == np.where(given.ravel() == 1, 3.0, 1.0).tolist()


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(("epochs", "steps"), [(0, 1), (1, 0), (2, 1)])
def test_reading_again_comes_to_the_same_place(name, epochs, steps):
    whole = SOURCES[name]()
    all_epochs = [firsts_of(epoch_of(whole)) for _ in range(epochs + 2)]
    again = SOURCES[name]()
    again.read_again(epochs, steps)
    assert firsts_of(epoch_of(again)) == all_epochs[epochs][steps:]
    assert firsts_of(epoch_of(again)) == all_epochs[epochs + 1]
    assert again.data_adapter.digest == whole.data_adapter.digest


@pytest.mark.parametrize("name", ["dataset", "generator"])
def test_validations_that_are_passed_by_leave_the_data_as_calls_of_evaluate_do(name):
    source = {"dataset": Shuffling, "generator": generated}[name]
    steps = {"dataset": None, "generator": 2}[name]
    plain, again = (EpochIterator(source(), steps_per_epoch=steps) for _ in range(2))
    for _ in range(3):
        plain.reset()
        expected = firsts_of(epoch_of(plain))
    again.reset()
    again.pass_by(2)
    assert firsts_of(epoch_of(again)) == expected


@pytest.mark.parametrize("name", SOURCES)
def test_a_resume_on_gpus_does_not_count_batches_that_were_only_read(name, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")  # Keras reads one batch ahead there
    whole, again = SOURCES[name](), SOURCES[name]()
    trained = [next(reader) for _, (_, _, reader) in zip(range(1), whole, strict=False)]
    digest = 0 if "arrays" in name else digest_of(trained[0])
    assert whole.data_adapter.digest == digest
    again.read_again(0, 1)
    assert again.data_adapter.digest == digest
    rest = [next(reader) for _, _, reader in again]
    assert firsts_of([*trained, *rest]) == firsts_of(epoch_of(SOURCES[name]()))


def test_reading_again_refuses_a_source_that_has_become_shorter():
    iterator = iterator_of(((X, X) for _ in range(3)), shuffle=False)
    with pytest.raises(ConfigurationError, match="the steps of the epoch"):
        iterator.read_again(0, 5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, X + 1),
        (X, X.astype("float64")),
        (X, X.ravel()),
        ((X, X), (X,)),
    ],
)
def test_digests_tell_batches_apart(first, second):
    assert digest_of(first) != digest_of(second)
    assert digest_of(first, 1) != digest_of(first, 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int8"])
def test_batches_of_any_dtype_of_jax_are_read_and_told_apart(dtype):
    array = np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(X % 2, dtype)))
    ((read, _),) = epoch_of(iterator_of(((one, X) for one in [array]), steps=1, shuffle=False))
    assert read.dtype == array.dtype
    assert digest_of(array) == digest_of(array.copy()) != digest_of(array[::-1])


@pytest.mark.parametrize("given", [["a", None], ["a", "b"], [b"a", b"b"]])
def test_refuses_what_is_no_number(given):
    def words():
        yield np.array(given, dtype=object if None in given else None), X[:2]

    iterator = iterator_of(words(), shuffle=False)
    with pytest.raises(ConfigurationError):
        epoch_of(iterator)
