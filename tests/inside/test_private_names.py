"""The private names of Keras and TensorFlow that are used exist, and find what they found.

Each test fails with the list of all missing names, so that an upgrade begins with that list. The
imports come first, in tests/image/test_imports.py.
"""

import ast
import importlib
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer import private
from cluster_trainer.private.passed_on import PassedOn

MODULES = ("keras_names", "tensorflow_names")


def source(module):
    return ast.parse((Path(private.__path__[0]) / f"{module}.py").read_text())


@pytest.mark.parametrize("module", MODULES)
def test_all_that_is_replaced_is_there(module):
    names = importlib.import_module(f"cluster_trainer.private.{module}")
    places = [one for one in vars(names).values() if isinstance(one, names.Replaceable)]
    assert places
    assert [f"{one.owner}: {one.name}" for one in places if not hasattr(one.owner, one.name)] == []


def of_a_function(statement):
    """Return the name that a `def`, or a getter of an attribute or a method, defines."""
    if isinstance(statement, ast.FunctionDef):
        return statement.name
    if not isinstance(statement, ast.Assign):
        return None
    made, (target,) = ast.unparse(statement.value), statement.targets
    is_getter = made.startswith(("attrgetter(", "methodcaller(", "_random_seed."))
    return ast.unparse(target) if is_getter else None


def of(layer, optimizer="sgd"):
    """Return a small compiled model that has trained a step."""
    model = keras.Sequential([keras.Input([2]), layer])
    model.compile(optimizer, "mse", metrics=["mae"])
    model.train_on_batch(np.ones([2, 2]), np.ones([2, 1]))
    return model


def examples_of_keras(k, folder):
    """Return, by function, whether it finds in an example what it finds in the present version."""
    model = of(keras.layers.Dense(1), optimizer=keras.optimizers.SGD(use_ema=True))
    (dense,), optimizer = model.layers, model.optimizer
    arrays = k.ArrayDataAdapter(np.ones([3, 2]), batch_size=2, shuffle=True)
    generated = k.GeneratorDataAdapter((np.ones([2, 2]),) for _ in range(9))
    read = k.PyDatasetAdapter(Data())
    read.get_tf_dataset()
    loading = k.TorchDataLoaderAdapter.__new__(k.TorchDataLoaderAdapter)
    loading._dataloader, loading._output_signature = [(np.ones([2, 2]),)] * 3, None  # noqa: SLF001
    one = tf.ones([1, 1])
    return {
        "layers_within": lambda: dense in k.layers_within(model),
        "own_trainable": lambda: len(k.own_trainable(dense)) == 2,
        "own_non_trainable": lambda: k.own_non_trainable(keras.layers.Normalization()) == [],
        "own_metrics": lambda: k.own_metrics(dense) == [],
        "seed_generators": lambda: len(k.seed_generators(keras.layers.Dropout(0.5))) == 1,
        "tracker": lambda: k.tracker(dense) is not None,
        "call_takes_training": lambda: k.call_takes_training(model),
        "reduction_axes": lambda: k.reduction_axes(of(keras.layers.BatchNormalization()).layers[0]),
        "strategy_given": lambda: k.strategy_given(model) is None,
        "give_strategy": lambda: k.give_strategy(model, None) is None,
        "compiled_loss": lambda: k.compiled_loss(model).built,
        "compiled_metrics": lambda: k.compiled_metrics(model).built,
        "compile_config": lambda: k.compile_config(model).config["loss"] == "mse",
        "options_of_loss": lambda: (
            k.options_of_loss(keras.losses.CosineSimilarity(axis=1)) == {"axis": 1}
        ),
        "user_losses": lambda: k.user_losses(model) == "mse",
        "user_metrics": lambda: k.user_metrics(model) == ["mae"],
        "function_of_metric": lambda: (
            k.function_of_metric(keras.metrics.MeanMetricWrapper(abs)) is abs
        ),
        "optimizers_of": lambda: k.optimizers_of(model) == [optimizer],
        "rate_variable": lambda: k.rate_variable(optimizer) is not None,
        "schedule_of": lambda: (
            k.schedule_of(optimizer) is None
            and callable(k.schedule_of(keras.optimizers.SGD(lambda: 0.1)))
        ),
        "compute_loss": lambda: k.compute_loss(model, None, one, one) == 0,
        "symbolic_build": lambda: k.symbolic_build(model, (tf.ones([1, 2]), one)) is None,
        "with_optionals": lambda: k.with_optionals(model, abs)(-3) == 3,
        "is_validated_after": lambda: k.is_validated_after(model, 1, 2),
        "made_by": lambda: k.made_by(model.outputs[0]) is dense,
        "step_counter": lambda: int(k.step_counter(optimizer)) == 1,
        "trained_by": lambda: len(k.trained_by(optimizer)) == 2,
        "unknown_to": lambda: len(k.unknown_to(optimizer, [dense.kernel, optimizer.iterations])),
        "is_decayed": lambda: k.is_decayed(optimizer, dense.kernel),
        "averages_of": lambda: len(k.averages_of(optimizer)) == 2,
        "value_of": lambda: isinstance(k.value_of(dense.kernel), tf.Variable),
        "set_value": lambda: k.set_value(dense.bias, k.value_of(dense.bias)) is None,
        "let_optimizers_see": lambda: k.let_optimizers_see(lambda _, strategy: strategy) is None,
        "counter_if_made": lambda: int(k.counter_if_made(optimizer)) == 1,
        "arrays_of": lambda: k.arrays_of(arrays) is not None,
        "num_examples": lambda: k.num_examples(arrays) == 3,
        "shuffle_of": lambda: k.shuffle_of(arrays) is True,
        "signature_of": lambda: k.signature_of(read) is not None,
        "set_signature": lambda: k.set_signature(read, k.signature_of(read)) is None,
        "dataset_of": lambda: k.dataset_of(loading) is not None,
        "torch_loader_of": lambda: k.torch_loader_of(loading) is loading._dataloader,  # noqa: SLF001
        "is_in_order": lambda: k.is_in_order(None) is False,
        "first_batches": lambda: len(k.first_batches(generated)) == k.NUM_BATCHES_FOR_TENSOR_SPEC,
        "is_to_profile": lambda: k.is_to_profile(profiling(model, folder)),
    }


def profiling(model, folder):
    callback = keras.callbacks.TensorBoard(str(folder), profile_batch=2)
    callback.set_model(model)
    return callback


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, _):
        return (np.ones([2, 2]),)


def graphs_of_a_function_and_its_gradient():
    graphs = {}

    @tf.custom_gradient
    def noted(value):
        graphs["forward"] = tf.compat.v1.get_default_graph()

        def gradient(upstream):
            graphs["backward"] = tf.compat.v1.get_default_graph()
            return upstream

        return value, gradient

    value = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(value)
        found = tf.function(noted)(value)
    tape.gradient(found, value)
    return graphs["forward"], graphs["backward"]


def examples_of_tensorflow(t, _):
    """Return the same for TensorFlow's functions."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        mirrored = tf.Variable(1.0)
    plain = [tf.Variable(1.0), tf.Variable(2.0)]
    halves = strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))
    rows = tf.data.Dataset.from_tensor_slices(tf.range(4))
    mapped = rows.map(tf.abs, num_parallel_calls=2, deterministic=False)
    mixed = tf.data.Dataset.random(rerandomize_each_iteration=True)
    variant = tf.raw_ops.RangeDataset(
        start=0, stop=2, step=1, output_types=[tf.int64], output_shapes=[[]]
    )
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    with tf.Graph().as_default():
        drawn = tf.raw_ops.RandomStandardNormal(shape=[1], dtype=tf.float32)
        first, second = drawn.op, tf.constant(1).op
    read = tf.function(tf.Variable(1.0).read_value).get_concrete_function()
    forward, backward = graphs_of_a_function_and_its_gradient()
    asking = tf.function(
        lambda: t.asked_at_call(
            tf.compat.v1.get_default_graph(), lambda: tf.ones([]), "one", tf.TensorSpec([])
        )
    )
    used, holder = tf.Variable(1.0), tf.Module()
    holder.held = {"a": 1}
    tf.random.set_seed(1)
    return {
        "global_seed": lambda: t.global_seed() == 1,
        "next_operation_seed": lambda: t.next_operation_seed() >= 0,
        "operation_seeds": lambda: t.operation_seeds().getstate(),
        "has_begun": lambda: t.has_begun() is True,
        "has_cluster": lambda: t.has_cluster() is False,
        "replicas_in_sync": lambda: t.replicas_in_sync(strategy) == 2,
        "worker_number": lambda: t.worker_number(strategy) == 0,
        "for_each_replica": lambda: (
            t.for_each_replica([1, 2]).values == (1, 2) and t.for_each_replica([3]) == 3
        ),
        "mirrored_variable": lambda: t.mirrored_variable(strategy, plain).values == (*plain,),
        "copies_of": lambda: (
            t.copies_of(mirrored) == mirrored.values and len(t.copies_of(plain[0]))
        ),
        "is_copy": lambda: t.is_copy(mirrored.values[0]) and not t.is_copy(tf.Variable(1)),
        "with_copies": lambda: (
            t.with_copies(mirrored.values[1]) is mirrored and t.with_copies(used) is used
        ),
        "used_in": lambda: t.used_in(tf.function(used.read_value).get_concrete_function().graph),
        "copy_here": lambda: t.copy_here(mirrored) is mirrored.values[0],
        "spec_of_first": lambda: t.spec_of_first(halves.element_spec).dtype == tf.int64,
        "run_after": lambda: t.run_after(second, first) or second.control_inputs == [first],
        "is_stateful": lambda: t.is_stateful(first) and not t.is_stateful(second),
        "type_spec": lambda: t.type_spec(iter(rows)) is not None,
        "converted_from": lambda: (
            t.converted_from(says) is says
            and tf.function(t.converted_from(tf.function(is_large)), autograph=False)(tf.ones([]))
            and t.converted_from(tf.function(is_large, autograph=False)) is is_large
        ),
        "can_ask_at_call": lambda: (
            [t.can_ask_at_call(one) for one in (forward, backward, None)] == [True, False, False]
        ),
        "asked_at_call": lambda: asking() == 1,
        "handle_data": lambda: t.handle_data(read.graph.external_captures[0]).is_set,
        "without_wrapper": lambda: type(t.without_wrapper(holder.held)) is dict,
        "table_as_tensors": lambda: len(t.table_as_tensors(table)) == 2,
        "fill_table": lambda: t.fill_table(table, t.table_as_tensors(table)) is None,
        "single": lambda: [*t.single(variant, tf.TensorSpec([], tf.int64))] == [0, 1],
        "inputs_of": lambda: t.inputs_of(rows.take(1)) == [rows],
        "functions_of": lambda: t.functions_of(rows.map(tf.abs)) == [tf.abs],
        "seeds_of": lambda: t.seeds_of(rows.shuffle(2, seed=5)) == (1, 5),
        "reshuffles": lambda: t.reshuffles(rows.shuffle(2)) and not t.reshuffles(rows),
        "draws_anew": lambda: t.draws_anew(mixed),
        "gives_what_is_ready": lambda: t.gives_what_is_ready(mapped),
        "batch_size_of": lambda: t.batch_size_of(rows.batch(3)) == 3,
        "count_of": lambda: (
            [t.count_of(one) for one in (rows.take(2), rows.skip(3), rows.repeat())] == [2, 3, -1]
        ),
        "drops_remainder": lambda: (
            t.drops_remainder(rows.batch(2, drop_remainder=True))
            and not t.drops_remainder(rows.batch(2))
        ),
        "buffer_of": lambda: t.buffer_of(rows.prefetch(3)) == 3,
        "parallel_calls_of": lambda: (
            t.parallel_calls_of(mapped) == 2 and t.parallel_calls_of(rows.batch(2)) is None
        ),
        "options_of_map": lambda: (
            t.options_of_map(mapped)
            == {
                "num_parallel_calls": 2,
                "synchronous": False,
                "use_unbounded_threadpool": False,
            }
            and t.options_of_map(rows.map(tf.abs, synchronous=True))["synchronous"]
        ),
        "traced_map": lambda: [int(one) for one in t.traced_map(mapped)(tf.constant(-3))] == [3],
        "has_effects": lambda: t.has_effects("RandomUniform") and not t.has_effects("Cast"),
        "graphs_of": lambda: (
            t.graphs_of(mapped)[0].get_operations()
            and len(t.graphs_of(rows.filter(lambda one: one > 0))) == 1
        ),
        "captured_by": lambda: len(t.captured_by(read.graph)) == 1,
        "tensors_of": lambda: len(t.tensors_of(rows)) == 1,
    }


def is_large(number):
    if number > 0:
        return tf.constant(True)  # noqa: FBT003  TensorFlow's argument
    return tf.constant(False)  # noqa: FBT003


def says(example):
    try:
        return bool(example())
    except (AttributeError, TypeError, ValueError):
        return False


@pytest.mark.parametrize(
    ("module", "examples_of"),
    [(MODULES[0], examples_of_keras), (MODULES[1], examples_of_tensorflow)],
)
def test_every_function_finds_what_it_asks_for(tmp_path, module, examples_of):
    names = importlib.import_module(f"cluster_trainer.private.{module}")
    defined = [*filter(None, map(of_a_function, source(module).body))]
    examples = examples_of(names, tmp_path)
    assert sorted(examples) == sorted(defined)
    assert [name for name, example in examples.items() if not says(example)] == []


def test_every_step_of_a_pipeline_is_called_as_it_was():
    names = importlib.import_module("cluster_trainer.private.tensorflow_names")
    rows = tf.data.Dataset.from_tensor_slices(tf.ones([4, 2]))
    steps = [
        *(rows.cache(), rows.prefetch(1), rows.repeat(), rows.take(1), rows.skip(1)),
        *(rows.shuffle(2), rows.with_options(tf.data.Options()), rows.shard(2, 0)),
        rows.apply(tf.data.experimental.assert_cardinality(4)),
    ]
    kinds = {type(one).__name__ for one in steps}
    assert kinds - {*names.AS_THEY_ARE} == set()
    assert type(rows.concatenate(rows)).__name__ in names.OF_SEVERAL_ITERATORS
    of_rows = {
        names.PREFETCH: rows.prefetch(1),
        names.REPEAT: rows.repeat(),
        names.SKIP: rows.skip(1),
        names.TAKE: rows.take(1),
        names.OPTIONS: rows.with_options(tf.data.Options()),
    }
    assert [*of_rows] == [type(one).__name__ for one in of_rows.values()]
    maps = [rows.map(tf.abs), rows.map(tf.abs, num_parallel_calls=2)]
    assert tuple(type(one).__name__ for one in maps) == names.MAPS
    batched = [rows.batch(2), rows.batch(2, num_parallel_calls=2), rows.padded_batch(2)]
    assert tuple(type(one).__name__ for one in batched[:2]) == names.BATCHES
    assert {type(one).__name__ for one in (*batched, rows.rebatch(2))} == {*names.BATCHING}
    assert type(tf.data.Dataset.zip(rows, rows)).__name__ == names.ZIP
    assert type(tf.data.Dataset.random(1)).__name__ == names.RANDOM
    mixed = tf.data.Dataset.sample_from_datasets([rows, rows])
    assert type(mixed).__name__ == names.DIRECTED_INTERLEAVE


def test_callbacks_keep_their_state_where_it_was(tmp_path):
    names = importlib.import_module("cluster_trainer.private.keras_names")
    made = {
        kind: kind(tmp_path / "w.weights.h5", save_weights_only=True)
        if kind is keras.callbacks.ModelCheckpoint
        else kind()
        for kind in names.STATE_OF_CALLBACKS
    }
    for callback in made.values():
        callback.set_model(keras.Sequential([keras.Input([1]), keras.layers.Dense(1)]))
        callback.on_train_begin()
    missing = [
        f"{kind.__name__}: {name}"
        for kind, kept in names.STATE_OF_CALLBACKS.items()
        for name in kept
        if not hasattr(made[kind], name)
    ]
    assert missing == []


class Raises(keras.layers.Layer):
    def call(self, _):
        raise self.error


def test_our_errors_leave_a_layer_and_a_function_unchanged():
    layer = Raises()
    layer.error = PassedOn("two", "parts")

    @tf.function
    def step(inputs):
        return layer(inputs)

    with pytest.raises(PassedOn) as caught:
        step(tf.ones([1, 2]))
    assert caught.value is layer.error


def test_a_function_asks_for_a_value_at_each_call_and_is_traced_once():
    names = importlib.import_module("cluster_trainer.private.tensorflow_names")
    present, traces = [1.0], []

    @tf.function
    def inner(number):
        traces.append(1)
        graph, spec = tf.compat.v1.get_default_graph(), tf.TensorSpec([])
        asked = names.asked_at_call(graph, lambda: tf.constant(present[0]), "present", spec)
        assert names.asked_at_call(graph, lambda: None, "present", spec) is asked
        return tf.cond(number > 0, lambda: number * asked, lambda: number)

    def gradient(function):
        number = tf.constant(5.0)
        with tf.GradientTape() as tape:
            tape.watch(number)
            found = function(number)
        return float(found), float(tape.gradient(found, number))

    assert gradient(inner) == (5, 1)
    present[0] = 2.0
    assert gradient(inner) == (10, 2)
    assert gradient(tf.function(lambda number: inner(number) + 1)) == (11, 2)
    assert len(traces) == 1
