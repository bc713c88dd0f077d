"""`fit`, `evaluate` and `predict` do with the engine on any number of devices what Keras's do."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from keras.src.backend.tensorflow import trainer as tf_trainer
from tensorflow.python.distribute.values import SyncOnReadVariable

from cluster_trainer.collectives.workers import WorkersOfStrategy
from cluster_trainer.engine.data.sources.rows import ArraySource
from conftest import quick_first, strategy_of

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(100, 4)).astype("float32")
TARGETS = INPUTS @ np.array([[1], [2], [-1], [0.5]], "float32")
pytestmark = pytest.mark.usefixtures("keeps_nothing")


def model_in(strategy, **options):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"], **options)
    return model


class OwnStep(keras.Model):
    """Trains without its compiled loss and metrics."""

    def __init__(self, logs):
        super().__init__()
        self.dense, self.logs_of = layers.Dense(1, kernel_initializer="zeros"), logs

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = ops.mean((self(inputs) - targets) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return self.logs_of(loss)


def own_step(strategy, logs):
    with strategy.scope():
        model = OwnStep(logs)
        model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


LOSS_OF_ZEROS = float(np.mean(TARGETS**2))


def test_what_a_step_returns_is_shown_though_a_metric_has_its_name(strategy):
    model = own_step(strategy, lambda loss: {"loss": loss, "twice": 2 * loss})

    history = model.fit(INPUTS, TARGETS, batch_size=100, verbose=0).history

    assert history["loss"] == pytest.approx([LOSS_OF_ZEROS], rel=1e-5)
    assert history["twice"] == pytest.approx([2 * LOSS_OF_ZEROS], rel=1e-5)


def test_train_on_batch_returns_what_the_step_returns(strategy):
    model = own_step(strategy, lambda loss: {"loss": loss})

    logs = model.train_on_batch(INPUTS, TARGETS, return_dict=True)

    assert logs["loss"] == pytest.approx(LOSS_OF_ZEROS, rel=1e-5)


def test_a_steps_whole_numbers_and_nested_logs_are_shown(strategy):
    model = own_step(strategy, lambda loss: {"all": {"one": loss, "count": tf.constant(2**24 + 1)}})

    history = model.fit(INPUTS, TARGETS, batch_size=50, verbose=0).history

    assert history["count"] == [2**24 + 1]
    assert set(history) == {"one", "count"}


class Counting(keras.metrics.Metric):
    """Counts examples in whole numbers, and returns its result in a dict."""

    def __init__(self):
        super().__init__()
        self.seen = self.add_variable((), "zeros", dtype="int32")

    def update_state(self, targets, _, sample_weight=None):  # noqa: ARG002
        self.seen.assign_add(ops.shape(targets)[0])

    def result(self):
        return {"seen": self.seen + 0}


def test_a_metric_may_count_whole_numbers(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[Counting()])

    assert model.fit(INPUTS, TARGETS, batch_size=30, verbose=0).history["seen"] == [100]


def test_gradients_may_be_of_several_types(strategy):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), layers.Dense(3, dtype="float64"), layers.Dense(1, dtype="float32")]
        )
        model.compile("sgd", "mse")

    model.fit(INPUTS, TARGETS, batch_size=30, verbose=0)


def test_an_epoch_without_data_warns_and_repeats_no_numbers(strategy):
    batches = ((INPUTS[i : i + 10], TARGETS[i : i + 10]) for i in range(0, 100, 10))

    with pytest.warns(UserWarning, match="data ended"):
        history = (
            model_in(strategy).fit(batches, steps_per_epoch=5, epochs=3, verbose=0).history["loss"]
        )

    assert history[1] != history[2] == 0


def test_each_validation_begins_with_the_first_batches(strategy):
    model = model_in(strategy)
    first = model.evaluate(INPUTS[:30], TARGETS[:30], verbose=0)[0]
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.0), "mse")

    history = model.fit(
        INPUTS,
        TARGETS,
        epochs=3,
        verbose=0,
        validation_data=(INPUTS, TARGETS),
        validation_batch_size=10,
        validation_steps=3,
    ).history

    assert history["val_loss"] == pytest.approx([first] * 3, rel=1e-5)


class Shortens(keras.callbacks.Callback):
    """Ends the first epoch after two batches, but never ends the fit."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.model.stop_training = not self.steps and batch == 1

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
        self.model.stop_training = False
        self.steps.append(int(self.model.optimizer.iterations.numpy()) - sum(self.steps))


def of_arrays():
    return {"x": INPUTS, "y": TARGETS, "batch_size": 20}


def of_dataset():
    return {"x": tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(20)}


@pytest.mark.parametrize(
    ("of_data", "steps_per_epoch", "batches"),
    quick_first(
        1,
        [
            (of_arrays, None, [[0, 1], range(5), range(5)]),
            (of_dataset, 3, [[0, 1], [2, 3, 4], [0, 1, 2]]),
        ],
    ),
)
def test_an_epoch_that_a_callback_shortens_is_followed_by_a_whole_one(
    strategy, of_data, steps_per_epoch, batches
):
    with strategy.scope():
        model = model_in(strategy)
        model.compile(keras.optimizers.SGD(0.0), "mse")
    shortens = Shortens()
    history = model.fit(
        **of_data(),
        epochs=3,
        steps_per_epoch=steps_per_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[shortens],
    ).history
    squares = ((model.predict(INPUTS, verbose=0) - TARGETS) ** 2).reshape(5, 20)
    assert shortens.steps == [len(one) for one in batches]
    assert history["loss"] == pytest.approx([squares[one].mean() for one in batches], rel=1e-5)


def test_validation_that_was_stopped_begins_anew(strategy):
    class Stop(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):  # noqa: ARG002
            self.model.stop_evaluating = batch == 1

    model = model_in(strategy)
    first = model.evaluate(INPUTS[:20], TARGETS[:20], verbose=0)[0]
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.0), "mse")

    history = model.fit(
        INPUTS,
        TARGETS,
        epochs=2,
        verbose=0,
        validation_data=(INPUTS, TARGETS),
        validation_batch_size=10,
        callbacks=[Stop()],
    ).history

    assert history["val_loss"] == pytest.approx([first] * 2, rel=1e-5)


@pytest.mark.parametrize("examples", [pytest.param(100, marks=pytest.mark.long), 95])
def test_predict_takes_several_batches_a_call_and_none_twice(strategy, examples):
    model = model_in(strategy, steps_per_execution=4)

    predictions = model.predict(INPUTS[:examples], batch_size=10, verbose=0)

    np.testing.assert_allclose(predictions, INPUTS[:examples].sum(1, keepdims=True), atol=1e-5)


def test_sparse_predictions_of_several_batches_a_call():
    model = keras.Sequential([keras.Input((4,)), layers.Lambda(tf.sparse.from_dense)])
    model.compile(steps_per_execution=2)

    predictions = model.predict(INPUTS, batch_size=20, verbose=0)

    np.testing.assert_allclose(tf.sparse.to_dense(predictions), INPUTS)


class Seen(keras.callbacks.Callback):
    """Notes each batch of a validation."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def on_test_batch_end(self, batch, logs=None):  # noqa: ARG002
        self.batches.append(batch)


def test_a_callback_is_called_for_each_batch_of_a_validation(strategy):
    model, alone, in_fit = model_in(strategy), Seen(), Seen()

    model.evaluate(INPUTS, TARGETS, batch_size=10, verbose=0, callbacks=[alone])
    model.fit(
        INPUTS,
        TARGETS,
        verbose=0,
        validation_data=(INPUTS, TARGETS),
        validation_batch_size=10,
        callbacks=[[in_fit]],
    )

    assert alone.batches == in_fit.batches == list(range(10))


@pytest.mark.parametrize(
    "kind", quick_first(1, [keras.callbacks.History, keras.callbacks.ModelCheckpoint])
)
def test_a_users_kind_of_one_of_keras_callbacks_is_called_for_each_batch(kind, tmp_path):
    batches = []

    class OfAUser(kind):
        def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
            batches.append(batch)

    callback = OfAUser() if kind is keras.callbacks.History else OfAUser(tmp_path / "model.keras")
    model_in(strategy_of(1)).fit(INPUTS, TARGETS, batch_size=5, verbose=0, callbacks=[callback])

    assert batches == list(range(20))


class Numbers(keras.callbacks.Callback):
    """Notes the first and the last batch number of each call."""

    def __init__(self):
        super().__init__()
        self.first, self.last = [], []

    def on_train_batch_begin(self, batch, logs=None):  # noqa: ARG002
        self.first.append(batch)

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        self.last.append(batch)


def known(dataset):
    return dataset


def unknown(dataset):
    return dataset.filter(lambda *_: True)


@pytest.mark.parametrize("length", [pytest.param(known, marks=pytest.mark.long), unknown])
def test_a_calls_numbers_are_evenly_spaced_though_too_few_batches_are_left(strategy, length):
    numbers, model = Numbers(), model_in(strategy, steps_per_execution=3)
    dataset = length(tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(15))

    model.fit(dataset, epochs=2, shuffle=False, verbose=0, callbacks=[numbers])

    assert numbers.first == [0, 3, 6] * 2
    assert numbers.last == [2, 5, 8] * 2
    assert model.optimizer.iterations.value.numpy() == 14


def test_steps_per_epoch_is_of_whole_calls(strategy):
    numbers, model = Numbers(), model_in(strategy, steps_per_execution=2)

    with pytest.warns(UserWarning, match="data ended"):
        model.fit(
            INPUTS,
            TARGETS,
            batch_size=10,
            epochs=2,
            steps_per_epoch=5,
            verbose=0,
            callbacks=[numbers],
        )

    assert numbers.last == [1, 3, 5, 1, 3]
    assert model.optimizer.iterations.value.numpy() == 10


def test_a_users_own_loop_takes_batches_one_by_one_from_keras_iterator(strategy):
    iterator = tf_trainer.TFEpochIterator(
        x=INPUTS, y=TARGETS, batch_size=16, distribute_strategy=strategy
    )
    replicas = strategy.num_replicas_in_sync
    numbers, rows = [], []

    for number, _, batches in iterator:
        inputs, targets = next(batches)
        numbers.append(number)
        if replicas > 1:
            assert isinstance(targets, tf.types.experimental.distributed.PerReplica)
        values = strategy.experimental_local_results(inputs)
        assert [len(one) for one in values] == [(16 if number < 6 else 4) // replicas] * replicas
        rows += list(values)

    assert numbers == list(range(7))
    np.testing.assert_array_equal(tf.concat(rows, 0), INPUTS)


def test_other_strategies_have_keras_own_fit():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model = keras.Sequential([layers.Dense(1)])
        model.compile("sgd", "mse")

    assert model.fit(INPUTS, TARGETS, verbose=0).history["loss"]
    assert model.evaluate(INPUTS, TARGETS, verbose=0)
    assert model.predict(INPUTS, verbose=0).shape == (100, 1)


def test_a_model_may_make_its_train_function_itself(strategy):
    class Own(keras.Sequential):
        def make_train_function(self, force=False):  # noqa: ARG002, FBT002
            @tf.function
            def train(batches):
                step = self.distribute_strategy.run(self.train_step, args=(next(batches),))
                return {"loss": self.distribute_strategy.reduce("MEAN", step["loss"], axis=None)}

            self.train_function = train

    with strategy.scope():
        model = Own([keras.Input((4,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")

    history = model.fit(INPUTS, TARGETS, batch_size=20, epochs=3, verbose=0).history

    first, second, third = history["loss"]
    assert first > second > third


def test_a_users_call_of_the_train_function_takes_as_many_batches_as_a_call_has():
    model = model_in(strategy_of(1), steps_per_execution=2)
    batches = iter(tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(10))
    model.make_train_function()

    logs = model.train_function(batches)

    assert int(model.optimizer.iterations) == 2
    assert logs["loss"].numpy() > 0


def test_ragged_arrays(strategy):
    lengths = np.tile([1, 2, 3, 4], 25)
    rows = tf.RaggedTensor.from_row_lengths(tf.ones([lengths.sum()]), lengths)
    total = layers.Lambda(lambda ragged: tf.reduce_sum(ragged, axis=1)[:, tf.newaxis])
    with strategy.scope():
        model = keras.Sequential([total])
        model.compile(loss="mse")

    loss = model.evaluate(rows, np.zeros([100, 1]), batch_size=30, verbose=0)

    assert loss == pytest.approx((1 + 4 + 9 + 16) / 4)


def test_targets_may_be_none(strategy):
    class AutoEncoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(4, kernel_initializer="zeros")

        def call(self, inputs):
            self.add_loss(ops.mean((self.dense(inputs) - inputs) ** 2))
            return inputs

    with strategy.scope():
        model = AutoEncoder()
        model.compile(keras.optimizers.SGD(0.0))

    history = model.fit(((INPUTS, None) for _ in range(3)), verbose=0).history

    assert history["loss"] == pytest.approx([np.mean(INPUTS**2)], rel=1e-5)


def test_one_of_several_targets_may_be_none(strategy):
    with strategy.scope():
        inputs = keras.Input((4,))
        outputs = [layers.Dense(1, name="a")(inputs), layers.Dense(1, name="b")(inputs)]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", ["mse", None])

    assert model.fit(INPUTS, [TARGETS, None], verbose=0).history["loss"]


class Noting(keras.utils.PyDataset):
    """Has ten examples a batch, and notes the calls of its hooks."""

    def __init__(self, batches, **options):
        super().__init__(**options)
        self.batches, self.told = batches, []

    @property
    def num_batches(self):
        return self.batches

    def __getitem__(self, index):
        return INPUTS[index % 10 * 10 :][:10], TARGETS[index % 10 * 10 :][:10]

    def on_epoch_begin(self):
        self.told.append("begin")

    def on_epoch_end(self):
        self.told.append("end")


@pytest.mark.parametrize(
    ("batches", "steps", "workers"),
    quick_first(1, [(None, 4, 1), (6, 2, 2), (6, None, 2)]),
)
def test_a_pydataset_is_told_of_each_epoch(strategy, batches, steps, workers):
    dataset = Noting(batches, workers=workers)

    model_in(strategy).fit(dataset, steps_per_epoch=steps, epochs=3, shuffle=False, verbose=0)

    assert dataset.told == ["begin", "end"] * 3


class OneHot(keras.utils.PyDataset):
    """Has one input for each batch, so that a model's weights count how often it saw the batch."""

    def __len__(self):
        return 30

    def __getitem__(self, index):
        return np.eye(30, dtype=np.float32)[[index] * 8], np.zeros([8, 1], np.float32)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_each_batch_of_a_pydataset_is_trained_once_a_pass(strategy, workers):
    with strategy.scope():
        count = layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((30,)), count])
        model.compile(keras.optimizers.SGD(1.0), loss=lambda _, outputs: outputs)

    model.fit(OneHot(workers=workers), epochs=2, verbose=0)

    np.testing.assert_allclose(model.get_weights()[0], np.full([30, 1], -2.0), atol=1e-5)


def test_whatever_is_true_shuffles():
    orders = []
    for shuffle in (False, 1):
        seen = []
        model = keras.Sequential([layers.Lambda(lambda x, seen=seen: seen.append(x.numpy()) or x)])
        model.compile(loss="mse", run_eagerly=True)
        model.fit(INPUTS, INPUTS, batch_size=100, shuffle=shuffle, verbose=0)
        orders.append(seen[-1])

    np.testing.assert_array_equal(orders[0], INPUTS)
    assert (orders[1] != INPUTS).any()


def test_what_was_created_outside_of_the_scope_is_refused():
    outside = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    with strategy_of(2).scope():
        model = keras.Sequential([outside, layers.Dense(1)])
        model.compile("sgd", "mse")

    with pytest.raises(ValueError, match="outside of the strategy's scope"):
        model.fit(INPUTS, TARGETS, verbose=0)


def test_fit_may_be_called_in_the_scope_and_keeps_checkpoints_there(
    strategy, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRAINER_CHECKPOINT_STEPS", "3")
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.BatchNormalization(), layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
        model.fit(INPUTS, TARGETS, validation_split=0.2, verbose=0)

    assert list(tmp_path.rglob("*.npz"))


def test_a_metric_from_outside_of_the_scope_is_refused():
    metric = keras.metrics.TruePositives()
    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1, "sigmoid")])
        model.compile("sgd", "mse", metrics=[metric])

    with pytest.raises(ValueError, match="outside of the strategy's scope"):
        model.evaluate(INPUTS, TARGETS > 0, verbose=0)


def test_layers_that_were_adapted_outside_of_the_scope_may_be_used(strategy):
    normalise = layers.Normalization()
    normalise.adapt(INPUTS)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), normalise, layers.Dense(1)])
        model.compile("sgd", "mse")

    assert model.fit(INPUTS, TARGETS, batch_size=30, verbose=0).history["loss"]


def test_at_an_epochs_end_all_replicas_have_the_same_statistics(strategy):
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
            values = self.model.layers[0].moving_mean.value
            seen.append([copy.numpy() for copy in strategy.experimental_local_results(values)])

    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.BatchNormalization(), layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(INPUTS, TARGETS, batch_size=40, verbose=0, callbacks=[Look()])

    assert all((copy == seen[0][0]).all() for copy in seen[0])


def test_all_workers_take_the_first_ones_seed(monkeypatch):
    seeds = []
    real = ArraySource.__init__

    def noting(self, adapter, replicas, seed, *given):
        seeds.append(seed)
        real(self, adapter, replicas, seed, *given)

    monkeypatch.setattr(ArraySource, "__init__", noting)
    # Among the numbers that the workers exchange, only a seed is so large.
    another = lambda _, number, *_what: [number + (number > 1000)] * 2  # noqa: E731
    monkeypatch.setattr(WorkersOfStrategy, "gather", another)
    keras.utils.set_random_seed(1)
    model_in(strategy_of(1)).fit(INPUTS, TARGETS, verbose=0)
    monkeypatch.setattr(WorkersOfStrategy, "gather", lambda _, number, *_what: [number, number])
    keras.utils.set_random_seed(1)
    model_in(strategy_of(1)).fit(INPUTS, TARGETS, verbose=0)

    assert seeds[0] == seeds[1] + 1


class Source:
    """A random-access source, as Grain calls it, or a map-style data set, as PyTorch does."""

    def __init__(self, examples):
        self._examples, self.read = examples, []

    def __len__(self):
        return self._examples

    def __getitem__(self, index):
        self.read.append(index)
        inputs = np.arange(4, dtype=np.float64) * index / self._examples
        return {"given": inputs}, index % 3


def of_named_inputs(strategy):
    with strategy.scope():
        inputs = keras.Input((4,), name="given")
        model = keras.Model({"given": inputs}, layers.Dense(1, kernel_initializer="ones")(inputs))
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    return model


def test_a_source_of_single_examples_is_taken_as_arrays_are(strategy):
    source, (inputs, targets) = Source(21), zip(*(Source(21)[i] for i in range(21)), strict=True)
    arrays = {"given": np.stack([one["given"] for one in inputs])}, np.array(targets)
    ends = []
    for data in ((source,), arrays):
        keras.utils.set_random_seed(3)
        model = of_named_inputs(strategy)
        history = model.fit(*data, batch_size=8, epochs=2, verbose=0)
        tested = model.evaluate(*data, batch_size=8, verbose=0)
        given = data[0] if len(data) > 1 else source
        predicted = model.predict(given, batch_size=8, verbose=0)
        ends.append((history.history, tested, predicted, model.get_weights()))
    (one, *numbers), (other, *wanted) = ends
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5)
    for found, expected in zip(numbers, wanted, strict=True):
        for part, of_arrays in zip(found, expected, strict=True):
            np.testing.assert_allclose(part, of_arrays, rtol=1e-5)
    assert set(source.read) == set(range(21))


def test_validation_data_may_be_such_a_source():
    model = of_named_inputs(strategy_of(2))
    history = model.fit(Source(21), batch_size=8, validation_data=Source(7), verbose=0)
    assert "val_mae" in history.history


def test_one_device_by_a_strategy_is_one_device():
    ends = []
    for strategy in (strategy_of(1), tf.distribute.OneDeviceStrategy("CPU:1")):
        keras.utils.set_random_seed(3)
        model = model_in(strategy)
        history = model.fit(INPUTS, TARGETS, batch_size=8, epochs=2, verbose=0).history
        ends.append([*history["loss"], *history["mae"]])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


def test_class_weights_of_a_source_are_those_of_arrays(strategy):
    class Pairs(Source):
        def __getitem__(self, index):
            return np.full(4, index / 21, np.float32), index % 3

    weights, ends = {0: 1.0, 1: 2.0, 2: 0.5}, []
    arrays = [np.stack(part) for part in zip(*(Pairs(21)[i] for i in range(21)), strict=True)]
    for data in ((Pairs(21),), arrays):
        keras.utils.set_random_seed(3)
        model = model_in(strategy)
        fitted = model.fit(*data, batch_size=8, class_weight=weights, epochs=2, verbose=0)
        ends.append(fitted.history["loss"])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)


def test_a_source_is_read_by_one_thread_at_a_time():
    class Seeking(Source):
        """Seeks and then reads, like a file."""

        def __getitem__(self, index):
            self.place = index
            inputs = np.arange(200) * 0 + self.place  # time for another thread to change it
            return np.full(4, float(inputs[-1])), float(self.place)

    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), lambda wanted, given: (given - 4 * wanted) ** 2)
    history = model.fit(Seeking(400), batch_size=16, epochs=2, verbose=0)
    assert history.history["loss"] == [0, 0]  # the layer's kernel is ones


@pytest.mark.parametrize(
    ("examples", "said"),
    [([], "there are no examples"), ([(np.ones(4), 0), (np.ones(4), 0.25)], "all need one type")],
)
def test_a_source_that_cannot_be_stacked_is_refused(examples, said):
    class Listed(Source):
        def __init__(self):
            super().__init__(len(examples))

        def __getitem__(self, index):
            return examples[index]

    with pytest.raises((ValueError, tf.errors.OpError), match=said):
        model_in(strategy_of(1)).fit(Listed(), batch_size=2, verbose=0)


def test_sparse_inputs_are_taken(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,), sparse=True), layers.Dense(1)])
        model.compile("sgd", "mse")
    given = tf.sparse.from_dense(np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * 5])
    history = model.fit(given, np.ones(20), batch_size=8, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


def test_a_dataset_that_a_user_has_distributed_is_taken():
    strategy = strategy_of(2)
    data = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(10)
    distributed = strategy.experimental_distribute_dataset(data)
    history = model_in(strategy).fit(distributed, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


@pytest.mark.parametrize(
    "batch_size",
    [12, pytest.param(16, marks=pytest.mark.long)],
    ids=["of unknown sizes", "of known sizes"],
)
def test_a_step_may_return_a_row_for_each_example(batch_size):
    """The step also returns a vector that by chance is as long as a replica's share."""

    class Each(OwnStep):
        def train_step(self, data):
            logs = super().train_step(data)
            return {**logs, "rows": data[0][:, :2], "eight": tf.range(8.0)}

    def logs(strategy):
        with strategy.scope():
            model = Each(lambda loss: {"own": loss})
            model.compile(keras.optimizers.SGD(0.0), "mse")
        options = {"batch_size": batch_size, "shuffle": False, "verbose": 0}
        by_fit = model.fit(INPUTS[:32], TARGETS[:32], **options).history
        return by_fit, model.train_on_batch(INPUTS[:17], TARGETS[:17], return_dict=True)

    for of_two, expected in zip(logs(strategy_of(2)), logs(strategy_of(1)), strict=True):
        for name in ("rows", "eight"):
            np.testing.assert_allclose(np.squeeze(of_two[name]), np.squeeze(expected[name]), 1e-6)


def test_on_one_device_a_step_may_return_tensors_of_any_shape():
    class Tables(OwnStep):
        def train_step(self, data):
            x = data[0]
            logs, table = super().train_step(data), tf.tensordot(x[:, 0], x[:, 0], 0)
            some = tf.boolean_mask(x, x[:, 0] > 0)
            shape = tf.concat([[1], tf.shape(table)], 0)[: tf.rank(some) + 1]
            of_any_rank = tf.reshape(table, shape)
            return {**logs, "table": table, "some": some, "reshaped": of_any_rank}

    model = Tables(lambda loss: {"own": loss})
    model.compile(keras.optimizers.SGD(0.0), "mse")
    given, first = INPUTS[:9], INPUTS[:9, 0]
    by_fit = model.fit(given, TARGETS[:9], batch_size=9, shuffle=False, verbose=0).history
    by_batch = model.train_on_batch(given, TARGETS[:9], return_dict=True)
    for logs in (by_batch, {name: value[0] for name, value in by_fit.items()}):
        np.testing.assert_allclose(logs["table"], np.outer(first, first), rtol=1e-6)
        np.testing.assert_allclose(logs["some"], given[first > 0], rtol=1e-6)
        assert np.shape(logs["reshaped"]) == (1, 9, 9)


def test_a_train_step_may_be_a_tf_function():
    class Compiled(OwnStep):
        train_step = tf.function(OwnStep.train_step)

    with strategy_of(2).scope():
        model = Compiled(lambda loss: {"own": loss})
        model.compile(keras.optimizers.SGD(0.0), "mse")
    history = model.fit(INPUTS, TARGETS, batch_size=100, verbose=0).history
    assert history["own"] == pytest.approx([LOSS_OF_ZEROS], rel=1e-5)


SEGMENTS = {
    "alike": np.zeros([32, 6], "int64"),
    "of-two": np.tile([0, 0, 0, 1, 1, 1], [32, 1]),
}


@pytest.mark.parametrize(
    "ids", [SEGMENTS["of-two"], pytest.param(SEGMENTS["alike"], marks=pytest.mark.long)]
)
def test_rows_that_come_twice_are_not_summed_as_one_device_does_not(ids):
    weights = []
    for strategy in (strategy_of(1), strategy_of(2)):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            entry = [keras.Input((6,), dtype="int64"), layers.Embedding(3, 4)]
            model = keras.Sequential([*entry, layers.Flatten(), layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.01, epsilon=0.01), "mse")
        model.fit(ids, np.arange(32.0), batch_size=16, epochs=3, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_metrics_are_reset_without_a_sum_over_replicas(monkeypatch):
    """TensorFlow reads what it assigns. Outside of a step, each variable costs a message."""
    reads = []
    read = SyncOnReadVariable._get_cross_replica  # noqa: SLF001
    monkeypatch.setattr(
        SyncOnReadVariable, "_get_cross_replica", lambda it: reads.append(it.name) or read(it)
    )
    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "sigmoid")])
        model.compile("sgd", "mse", metrics=[keras.metrics.AUC()])
    data = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    model.fit(*data, batch_size=4, verbose=0)  # builds the metrics, which reads them once
    reads.clear()
    history = model.fit(*data, validation_data=data, batch_size=4, epochs=2, verbose=0)
    again = model.evaluate(*data, verbose=0, return_dict=True)
    assert not reads
    assert again["loss"] == pytest.approx(history.history["val_loss"][-1])


def test_what_stands_for_a_variables_assign_is_given_what_keras_gives_it(monkeypatch):
    """Keras's own tests of sparse gradients replace `assign` in this way."""
    variable, assigned = keras.Variable([1.0, 2.0]), []
    kind = type(variable.value)
    monkeypatch.setattr(kind, "assign", lambda _, value: assigned.append(np.array(value)))
    keras.optimizers.SGD(0.5).apply([ops.ones([2])], [variable])
    assert assigned
