"""Every part of Keras is judged: it treats each example alone, or its first batch is compared.

A new version of Keras that brings another part fails here. Read its source. If its result for an
example depends on others, name it in `engine/first_batch/across_examples.py`, otherwise here.
"""

import inspect
import json
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from meeting_place import MeetingPlace

from cluster_trainer.engine.first_batch.due import Due
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.first_batch.program_parts import across_examples, own_parts
from conftest import quick_first, strategy_of

pytestmark = pytest.mark.usefixtures("keeps_nothing")
ROWS = 6
CUTS = slice(0, 2), slice(2, ROWS)
CHECK = FirstBatchMode()

# Names of layers that are tried, with the shapes of an example and the arguments.
TRIED = (
    ([(5,)], "ActivityRegularization ELU Identity LayerNormalization LeakyReLU PReLU", {}),
    ([(5,)], "ReLU RMSNormalization Softmax UnitNormalization", {}),
    ([(5,)], "Activation", {"activation": "tanh"}),
    ([(5,)], "Dense", {"units": 3}),
    ([(5,)], "Discretization", {"bin_boundaries": [0.2, 0.5]}),
    ([(5,)], "EinsumDense", {"equation": "ab,bc->ac", "output_shape": (3,)}),
    ([(5,)], "Normalization", {"mean": 0.5, "variance": 2.0}),
    ([(5,)], "RepeatVector", {"n": 2}),
    ([(5,)], "Rescaling", {"scale": 2.0}),
    ([(5,)], "Reshape", {"target_shape": (5, 1)}),
    ([(5,), (5,)], "Add Average Concatenate Maximum Minimum Multiply Subtract", {}),
    ([(5,), (5,)], "Dot", {"axes": 1}),
    ([(6, 4)], "Cropping1D Flatten GlobalAveragePooling1D", {}),
    ([(6, 4)], "GlobalMaxPooling1D Masking MaxPooling1D UpSampling1D ZeroPadding1D", {}),
    ([(6, 4)], "AveragePooling1D", {"pool_size": 2}),
    ([(6, 4)], "AdaptiveAveragePooling1D AdaptiveMaxPooling1D", {"output_size": 2}),
    ([(6, 4)], "Conv1D Conv1DTranspose SeparableConv1D", {"filters": 2, "kernel_size": 2}),
    ([(6, 4)], "DepthwiseConv1D", {"kernel_size": 2}),
    ([(6, 4)], "GroupNormalization", {"groups": 2}),
    ([(6, 4)], "GRU LSTM SimpleRNN", {"units": 3}),
    ([(6, 4)], "Permute", {"dims": (2, 1)}),
    ([(6, 4), (6, 4)], "AdditiveAttention Attention", {}),
    ([(6, 6, 3)], "AutoContrast Cropping2D GlobalAveragePooling2D", {}),
    ([(6, 6, 3)], "GlobalMaxPooling2D MaxPooling2D UpSampling2D ZeroPadding2D", {}),
    ([(6, 6, 3)], "AveragePooling2D", {"pool_size": 2}),
    ([(6, 6, 3)], "AdaptiveAveragePooling2D AdaptiveMaxPooling2D", {"output_size": 2}),
    ([(6, 6, 3)], "CenterCrop Resizing", {"height": 4, "width": 5}),
    ([(6, 6, 3)], "ContrastLimitedAdaptiveHistogramEqualization", {"tile_grid_size": (2, 2)}),
    ([(6, 6, 3)], "Conv2D Conv2DTranspose SeparableConv2D", {"filters": 2, "kernel_size": 2}),
    ([(6, 6, 3)], "ConvLSTM1D", {"filters": 2, "kernel_size": 2}),
    ([(6, 6, 3)], "DepthwiseConv2D", {"kernel_size": 2}),
    ([(3, 4, 4, 2)], "Cropping3D GlobalAveragePooling3D", {}),
    ([(3, 4, 4, 2)], "GlobalMaxPooling3D MaxPooling3D UpSampling3D ZeroPadding3D", {}),
    ([(3, 4, 4, 2)], "AveragePooling3D", {"pool_size": 2}),
    ([(3, 4, 4, 2)], "AdaptiveAveragePooling3D AdaptiveMaxPooling3D", {"output_size": 2}),
    ([(3, 4, 4, 2)], "Conv3D Conv3DTranspose ConvLSTM2D", {"filters": 2, "kernel_size": 2}),
    ([(2, 3, 3, 3, 2)], "ConvLSTM3D", {"filters": 2, "kernel_size": 2}),
)
TRIED_BY_NAME = {
    name: (shapes, options) for shapes, names, options in TRIED for name in names.split()
}
TRIED_WITH_OTHERS = {
    "Bidirectional": lambda: layers.Bidirectional(layers.GRU(2)),
    "Pipeline": lambda: layers.Pipeline([layers.Rescaling(2.0)]),
    "RNN": lambda: layers.RNN([layers.GRUCell(2), layers.LSTMCell(3), layers.SimpleRNNCell(2)]),
    "SpectralNormalization": lambda: layers.SpectralNormalization(layers.Dense(2)),
    "TimeDistributed": lambda: layers.TimeDistributed(layers.Dense(2)),
}
# Layers that treat each example alone, by their source.
READ = """
    GRUCell InputLayer InputSpec LSTMCell Layer SimpleRNNCell StackedRNNCells Wrapper
    GroupedQueryAttention MultiHeadAttention MaxNumBoundingBoxes
    CategoryEncoding Embedding HashedCrossing Hashing IntegerLookup ReversibleEmbedding
    STFTSpectrogram StringLookup
"""
# Layers that draw at random: each replica draws other numbers, which is documented.
RANDOM = """
    AlphaDropout Dropout GaussianDropout GaussianNoise RandomBrightness RandomColorDegeneration
    RandomColorJitter RandomContrast RandomCrop RandomElasticTransform RandomErasing RandomFlip
    RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization
    RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom
    Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D
"""
# AugMix and RandAugment count by their Equalization, TextVectorization by its options, and
# BatchNormalization is documented.
COUNTED = {
    *("AugMix", "BatchNormalization", "RandAugment", "TextVectorization"),
    *own_parts.OPAQUE,
    *across_examples.LAYERS,
}
# Losses and metrics that are the same for shares of a batch, if labels have a row for each example.
MEANS = """
    binary_crossentropy binary_focal_crossentropy categorical_crossentropy
    categorical_focal_crossentropy categorical_hinge cosine_similarity huber kl_divergence log_cosh
    mean_absolute_error mean_absolute_percentage_error mean_squared_error
    mean_squared_logarithmic_error poisson binary_accuracy categorical_accuracy
    concordance_correlation pearson_correlation top_k_categorical_accuracy
"""
MEANS_OF_CLASSES = """
    sparse_categorical_accuracy sparse_categorical_crossentropy sparse_top_k_categorical_accuracy
"""
SUMS = """
    AUC BinaryIoU F1Score FBetaScore FalseNegatives FalsePositives IoU MeanIoU OneHotIoU
    OneHotMeanIoU Precision PrecisionAtRecall R2Score Recall RecallAtPrecision RootMeanSquaredError
    SensitivityAtSpecificity SpecificityAtSensitivity TrueNegatives TruePositives
"""
OF_FUNCTIONS = """
    Accuracy BinaryAccuracy BinaryCrossentropy BinaryFocalCrossentropy CTC CategoricalAccuracy
    CategoricalCrossentropy CategoricalFocalCrossentropy CategoricalGeneralizedCrossEntropy
    CategoricalHinge Circle ConcordanceCorrelation CosineSimilarity Dice Hinge Huber KLDivergence
    LogCosh LogCoshError Loss Mean MeanAbsoluteError MeanAbsolutePercentageError MeanMetricWrapper
    MeanSquaredError MeanSquaredLogarithmicError Metric PearsonCorrelation Poisson
    SparseCategoricalAccuracy SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy
    SquaredHinge Sum TopKCategoricalAccuracy Tversky
"""
HELPERS = {"deserialize", "get", "serialize"}
ACTIVATIONS = """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear
    log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign
    sparse_plus sparse_sigmoid sparsemax squareplus tanh tanh_shrink threshold
"""


def public(module):
    """Return the own names of a module's public classes and functions, without aliases."""
    found = [one for name, one in vars(module).items() if not name.startswith("_")]
    return {one.__name__ for one in found if inspect.isclass(one) or inspect.isfunction(one)}


def test_every_layer_of_keras_is_judged():
    judged = {*TRIED_BY_NAME, *TRIED_WITH_OTHERS, *READ.split(), *RANDOM.split(), *COUNTED}
    classes = {name for name in public(layers) if not name.islower()}
    assert classes - {"Input"} - judged == set()
    assert judged - classes == {"Distiller"}


def test_every_loss_and_metric_of_keras_is_judged():
    judged = {*MEANS.split(), *MEANS_OF_CLASSES.split(), *SUMS.split(), *OF_FUNCTIONS.split()}
    judged |= {"ctc", "hinge", "squared_hinge", *across_examples.FUNCTIONS, *HELPERS}
    assert (public(keras.losses) | public(keras.metrics)) ^ judged == set()


def test_everything_else_of_keras_that_sees_a_batch_is_judged():
    kinds = {"L1", "L1L2", "L2", "Regularizer", *across_examples.REGULARIZERS}
    assert public(keras.regularizers) - HELPERS == kinds
    assert public(keras.activations) - HELPERS == {*ACTIVATIONS.split()}
    losses = {"DistillationLoss", "FeatureDistillation", "LogitsDistillation"}
    assert public(keras.distillation) == losses | {"Distiller"}


def numbers(*shape):
    return np.random.default_rng(len(shape)).uniform(0.05, 0.95, (ROWS, *shape)).astype("float32")


def is_alone(function, *given):
    """Tell whether a function has the same results for rows whether or not it sees others."""
    whole = np.asarray(function(*given))
    parts = [np.asarray(function(*(one[cut] for one in given))) for cut in CUTS]
    return np.allclose(whole, np.concatenate(parts), rtol=1e-4, atol=1e-5)


def tried(name):
    if name in TRIED_WITH_OTHERS:
        return [(6, 4)], TRIED_WITH_OTHERS[name]()
    shapes, options = TRIED_BY_NAME[name]
    return shapes, getattr(layers, name)(**options)


@pytest.mark.parametrize("name", [*TRIED_BY_NAME, *TRIED_WITH_OTHERS])
def test_a_layer_treats_each_example_alone(name):
    shapes, layer = tried(name)

    def called(*given):
        return layer(given[0] if len(given) == 1 else [*given])

    assert is_alone(called, *(numbers(*shape) for shape in shapes))


@pytest.mark.parametrize("name", ACTIVATIONS.split())
def test_an_activation_treats_each_example_alone(name):
    options = {"threshold": 0.5, "default_value": 0.0} if name == "threshold" else {}
    assert is_alone(partial(getattr(keras.activations, name), **options), numbers(4))


def function_called(name):
    return getattr(keras.losses, name, None) or getattr(keras.metrics, name)


@pytest.mark.parametrize("name", [*MEANS.split(), *MEANS_OF_CLASSES.split()])
def test_a_loss_or_metric_is_a_number_for_each_example(name):
    labels = np.eye(4, dtype="float32")[np.arange(ROWS) % 4] * 0.9 + 0.01
    if name in MEANS_OF_CLASSES.split():
        labels = np.arange(ROWS) % 4
    assert is_alone(function_called(name), labels, numbers(4))


OPTIONS = {
    "IoU": {"num_classes": 4, "target_class_ids": [0, 1]},
    "MeanIoU": {"num_classes": 4},
    "OneHotIoU": {"num_classes": 4, "target_class_ids": [0, 1]},
    "OneHotMeanIoU": {"num_classes": 4},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}


@pytest.mark.parametrize("name", SUMS.split())
def test_a_metrics_variables_are_sums_over_examples(name):
    labels, outputs = np.eye(4, dtype="float32")[np.arange(ROWS) % 4], numbers(4)
    if name in ("IoU", "MeanIoU"):
        labels, outputs = np.arange(ROWS) % 4, np.arange(ROWS) % 3

    def updated(cut):
        metric = getattr(keras.metrics, name)(**OPTIONS.get(name, {}))
        metric.update_state(labels[cut], outputs[cut])
        return [np.asarray(one) for one in metric.variables]

    parts = map(updated, CUTS)
    for whole, *of_parts in zip(updated(slice(None)), *parts, strict=True):
        np.testing.assert_allclose(whole, sum(of_parts), rtol=1e-5)


@pytest.mark.parametrize("name", ["L1", "L2", "L1L2"])
def test_a_regularizer_of_outputs_is_a_sum_over_examples(name):
    options = {"l1": 0.1, "l2": 0.2} if name == "L1L2" else {}
    rule, outputs = getattr(keras.regularizers, name)(**options), numbers(4)
    parts = [float(rule(ops.convert_to_tensor(outputs[cut]))) for cut in CUTS]
    assert sum(parts) == pytest.approx(float(rule(ops.convert_to_tensor(outputs))))


def compiled(*parts, loss="mse", metrics=None):
    model = keras.Sequential([*parts])
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=metrics)
    return model


def dense(**options):
    options = {"kernel_initializer": "ones", **options}
    return [keras.Input((1,)), layers.Dense(1, use_bias=False, **options)]


def less_the_mean():
    inputs = keras.Input((1,))
    return keras.Model(inputs, inputs - ops.mean(inputs, axis=0, keepdims=True))


class Cell:
    """A cell that is no layer."""

    state_size = 1

    def call(self, inputs, states):
        return inputs - ops.mean(inputs, 0), states


TEXTS = {"vocabulary": ["a", "b"]}
COMPARED = {
    "operations-in-a-nested-model": lambda: compiled(keras.Input((1,)), less_the_mean()),
    "operations-two-models-deep": lambda: compiled(
        keras.Input((1,)), keras.Sequential([less_the_mean()])
    ),
    "operations-in-each-time-step": lambda: compiled(
        keras.Input((2, 1)), layers.TimeDistributed(less_the_mean())
    ),
    "a-cell-that-is-no-layer": lambda: compiled(keras.Input((2, 1)), layers.RNN(Cell())),
    "equalization-within": lambda: compiled(
        keras.Input((4, 4, 3)), layers.Pipeline([layers.RandAugment()])
    ),
    "texts-padded-to-the-longest": lambda: compiled(
        keras.Input((), dtype="string"), layers.TextVectorization(**TEXTS)
    ),
    "an-equation-over-rows": lambda: compiled(
        layers.EinsumDense("abc,cd->bad", output_shape=(None, 3))
    ),
    "outputs-of-rank-1": lambda: compiled(keras.Input((1,)), layers.Reshape(())),
    "orthogonal-outputs": lambda: compiled(
        *dense(activity_regularizer=keras.regularizers.OrthogonalRegularizer())
    ),
    "a-loss": lambda: compiled(*dense(), loss="circle"),
    "pearson": lambda: compiled(*dense(), metrics=[keras.metrics.PearsonCorrelation(axis=0)]),
    "a-loss-as-a-metric": lambda: compiled(*dense(), metrics=[keras.losses.dice]),
    "a-loss-object-as-a-metric": lambda: compiled(*dense(), metrics=[keras.losses.Tversky()]),
    "a-metric-of-an-output": lambda: compiled(*dense(), metrics={"dense": [keras.losses.dice]}),
}
LEFT_ALONE = {
    "operations-of-none": lambda: compiled(keras.Input((1,)), keras.Sequential(dense())),
    "texts-of-one-length": lambda: compiled(
        keras.Input((), dtype="string"), layers.TextVectorization(output_sequence_length=3, **TEXTS)
    ),
    "a-cell": lambda: compiled(keras.Input((2, 1)), layers.RNN(layers.GRUCell(2))),
    "dice-of-each-picture": lambda: compiled(*dense(), loss=keras.losses.Dice(axis=(1, 2, 3))),
    "orthogonal-weights": lambda: compiled(
        *dense(kernel_regularizer=keras.regularizers.OrthogonalRegularizer())
    ),
    "metrics": lambda: compiled(*dense(), metrics=["mae", "accuracy", keras.metrics.AUC()]),
}


def is_compared(make):
    with strategy_of(2).scope():
        model = make()
    return Due(model, "training", CHECK).is_wanted()


@pytest.mark.parametrize("name", COMPARED)
def test_a_part_that_computes_over_the_batch_is_compared(name):
    assert is_compared(COMPARED[name])


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_part_that_treats_each_example_alone_is_not_compared(name):
    assert not is_compared(LEFT_ALONE[name])


def scored(metric, *, of_steps=False):
    with strategy_of(2).scope():
        steps = [keras.Input((5, 1)), layers.Dense(1)] if of_steps else dense()
        return compiled(*steps, metrics=[metric])


@pytest.mark.parametrize(
    ("model", "labels", "expected"),
    [
        (lambda: scored("poisson"), (ROWS,), True),
        (lambda: scored("poisson"), (ROWS, 1), False),
        (lambda: scored("mae"), (ROWS,), False),
        (lambda: scored("mae", of_steps=True), (ROWS,), True),
        (lambda: scored("mae", of_steps=True), (ROWS, 5), False),
    ],
)
def test_labels_that_are_compared_with_other_examples_outputs_are_noticed(model, labels, expected):
    due = Due(model(), "training", CHECK)
    batch = tf.zeros([ROWS, 1]), tf.zeros(labels)
    due.look_at(lambda: batch)
    assert due.is_wanted() is expected


@pytest.mark.parametrize("name", ["CategoricalHinge", "Hinge", "KLDivergence", "Poisson"])
def test_a_metric_of_labels_without_an_axis_is_told(name, lines):
    model = scored(name)
    labels, x = np.arange(4, dtype="float32"), column(0.2, 0.9, 0.4, 3)
    model.fit(x, labels, batch_size=4, shuffle=False, verbose=0)
    (line,) = lines()
    assert f"{name} is" in line


def column(*values):
    return np.array(values, "float32").reshape(-1, 1)


def tone():
    sound = np.zeros((4, 64), "float32")
    sound[0] = 1000 * np.sin(2 * np.pi * 1000 / 8000 * np.arange(64))
    return sound


def of_sound():
    options = {"fft_length": 32, "sequence_stride": 16, "sampling_rate": 8000, "num_mel_bins": 4}
    pooling = layers.GlobalAveragePooling1D(data_format="channels_first")
    return compiled(keras.Input((64,)), layers.MelSpectrogram(**options), pooling)


def of_pictures():
    """Return a model with an Equalization within a Pipeline. Directly in a model, Keras skips it.

    Its `compute_output_spec` returns the symbolic inputs, so the model does not depend on it.
    """
    pipeline = layers.Pipeline([layers.Equalization(), layers.Rescaling(1 / 255)])
    return compiled(keras.Input((1, 1, 1)), pipeline, layers.Flatten(), layers.Dense(1))


def of_outputs():
    rule = keras.regularizers.OrthogonalRegularizer(factor=1.0, mode="columns")
    options = {"kernel_initializer": "identity", "activity_regularizer": rule}
    return compiled(keras.Input((2,)), layers.Dense(2, use_bias=False, **options))


PAIRS = np.array([[1, 0], [0, 1], [1, 1], [2, 1]], "float32")
PROGRAMS = {
    "operations": (COMPARED["operations-in-a-nested-model"], column(0, 1, 2, 3), column(*4 * [0])),
    "MelSpectrogram": (of_sound, tone(), column(*4 * [0])),
    "Equalization": (of_pictures, column(0, 85, 170, 255)[:, None, None], column(0, 1, 2, 3)),
    "OrthogonalRegularizer": (of_outputs, PAIRS, PAIRS),
    "pearson_correlation": (COMPARED["pearson"], column(0, 1, 3, 2), column(0, 1, 2, 3)),
    "dice": (COMPARED["a-loss-as-a-metric"], column(1, 1, 1, 1), column(1, 0, 1, 1)),
}
OF_METRICS = ("pearson_correlation", "dice")


@pytest.fixture
def lines(capfd, caplog):
    """Return a function that returns the lines of the log that have a text.

    Those of a fit are on stdout. Others, before a fit prepares the log, are warnings at least.
    """

    def found(text="first batch"):
        told = [f"{one.levelname} {one.getMessage()}" for one in caplog.records]
        return [line for line in [*told, *capfd.readouterr().out.splitlines()] if text in line]

    return found


@pytest.mark.parametrize("name", quick_first(3, PROGRAMS))
def test_a_difference_is_told_with_its_cause(name, lines):
    make, x, y = PROGRAMS[name]
    with strategy_of(2).scope():
        model = make()
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    (line,) = lines()
    assert "On one device this batch's" in line
    assert ("training is the same" in line) == (name in OF_METRICS)
    assert name == "operations" or f"a part of Keras ({name} " in line


@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("last", quick_first(1, [-1, 1]), ids=["other-labels", "binary"])
def test_hinge_converts_labels_by_the_whole_batch(name, last, lines):
    x, y = column(*4 * [0.5]), column(0, 1, 1, last)

    def trained(replicas):
        with strategy_of(replicas).scope():
            model = compiled(*dense(), loss=name, metrics=[getattr(keras.metrics, name)])
        history = model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0).history
        results = model.evaluate(x, y, batch_size=4, verbose=0)
        return np.concatenate([*history.values(), results, model.get_weights()[0].ravel()])

    np.testing.assert_allclose(trained(2), trained(1), rtol=1e-5)
    assert lines() == []


def test_metrics_of_an_evaluation_are_compared(lines):
    make, x, y = PROGRAMS["pearson_correlation"]
    with strategy_of(2).scope():
        model = make()
    model.evaluate(x, y, batch_size=4, verbose=0)
    (line,) = lines()
    assert "pearson_correlation is 0.8, on 2 devices 0" in line


@pytest.mark.parametrize(
    "make", quick_first(1, [of_sound, of_pictures]), ids=["of-sound", "of-pictures"]
)
def test_predictions_that_depend_on_the_batch_are_warned_of_once(make, lines):
    with strategy_of(2).scope():
        model = make()
    x = PROGRAMS["MelSpectrogram" if make is of_sound else "Equalization"][1]
    for _ in range(2):
        model.predict(x, verbose=0)
    told = lines("rows may differ")
    assert ["MelSpectrogram cuts off" in one for one in told] == [True] * (make is of_sound)


def test_a_known_part_is_warned_of_if_its_batch_cannot_be_compared(lines):
    with strategy_of(2).scope():
        mixed = layers.MixUp(seed=1)
        model = compiled(keras.Input((4, 4, 3)), mixed, layers.Flatten(), layers.Dense(1))
    model.fit(numbers(4, 4, 3), column(*range(ROWS)), epochs=2, verbose=0)
    (line,) = lines()
    assert "cannot be compared" in line
    assert "MixUp mixes the batch's pictures" in line
    assert "WARNING" in line


SCRIPT = """
import json
import keras, numpy as np
from keras import layers, ops

def of(*parts, **compiled):
    model = keras.Sequential([*parts, layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.1), **compiled)
    return model

def column(*values):
    return np.array(values, "float32").reshape(-1, 1)

inputs = keras.Input((1,))
inner = keras.Model(inputs, inputs - ops.mean(inputs, axis=0, keepdims=True))
for model, x, y in (
    (of(keras.Input((1,)), loss="hinge"), np.full((4, 1), 0.5), column(0, 1, 1, -1)),
    (of(keras.Input((1,)), inner, loss="mse"), column(0, 1, 2, 3), column(0, 0, 0, 0)),
    (of(keras.Input((1,)), loss="mse", metrics=["poisson"]), column(1, 2, 3, 4), np.arange(4.0)),
):
    history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    print("LOSS", json.dumps(history["loss"]), flush=True)
"""


def test_workers_decide_together_and_are_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with MeetingPlace(tmp_path / "place", 2, str(script)) as place:
        assert place.wait() == [0, 0], place.logs
        for worker in place.workers:
            hinge, operations, metric, _ = worker.log.read_text().split("LOSS ")
            assert "first batch" not in hinge
            losses, _, _ = operations.partition("\n")
            assert json.loads(losses) == pytest.approx([0.875, 0.8734375])
            assert "loss is 1.25, on 2 workers 0.25" in operations
            assert "a part of Keras (labels have too few axes" in metric
