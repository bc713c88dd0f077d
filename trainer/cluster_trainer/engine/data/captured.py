"""Describes what the functions of a tf.data pipeline take from the script: numbers, texts, tables.

Workers compare it without reading the pipeline, because reading would use up a shuffle order.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.checkpoints.resume import DATA_NUMBERS
from cluster_trainer.engine.functions import nodes_within
from cluster_trainer.private import tensorflow_names
from cluster_trainer.same_code.script_text import digest_of

FEW = 16
"""The most numbers of a constant that are told; of more, some have a digest."""
DIGESTED = 4096
SHOWN_CHARACTERS = 80
BUCKETS = 2**62
TEXTS = "SHA-256 of tables and lists of texts in functions of tf.data"
FIND, FILLS = "LookupTableFindV2", ("LookupTableInsert", "LookupTableImport", "LookupTableRemove")


def of_numbers(graphs: Sequence[Any]) -> dict[str, str]:
    """Return {DATA_NUMBERS: the numbers that functions take from the script}; {} without any.

    They are constants, such as a scale in a `map`, and tensors.

    Args:
        graphs: the functions' graphs.
    """
    values = [value for graph in graphs for value in _values(graph) if value.dtype != object]
    # Sorted, because the names of functions, and so their order, may differ between workers.
    told = sorted(map(_told, values))
    return {DATA_NUMBERS: _short(", ".join(told))} if told else {}


def of_texts(graphs: Sequence[Any]) -> dict[str, str]:
    """Return {TEXTS: a digest of the tables, and of lists of texts}; {} without any.

    The order of a list of texts often numbers the labels, and so does a table. Single texts are
    omitted, and folders of paths, because these may differ between workers.
    """
    lists = [
        digest_of(repr(_names_of(value)))
        for graph in graphs
        for value in _values(graph)
        if value.dtype == object and value.size > 1
    ]
    found = sorted([*lists, *(one for graph in graphs for one in _tables(graph))])
    return {TEXTS: digest_of(repr(found))} if found else {}


def _values(graph: Any) -> Iterator[np.ndarray]:
    """Yield the constants and the tensors that a graph has; texts have the type object."""
    for node in nodes_within(graph):
        if node.op == "Const" and _has_values(tf.as_dtype(node.attr["value"].tensor.dtype)):
            yield tf.make_ndarray(node.attr["value"].tensor)
    for tensor in tensorflow_names.captured_by(graph):
        if _has_values(tensor.dtype):
            yield np.asarray(tensor.numpy(), object if tensor.dtype == tf.string else None)


def _has_values(dtype: tf.DType) -> bool:
    is_number = dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool
    return bool(is_number or dtype == tf.string)


def _told(value: np.ndarray) -> str:
    """Return numbers as text, or type, shape and a digest if there are many."""
    if value.size <= FEW:
        return str(value.tolist())
    places = np.unique(np.linspace(0, value.size - 1, DIGESTED, dtype=np.int64))
    digest = sha256(value.reshape(-1)[places].tobytes()).hexdigest()[:12]
    return f"{value.dtype.name} {[*value.shape]} {digest}"


def _tables(graph: Any) -> Iterator[str]:
    """Yield the size and a digest of each lookup table; none of those that the graph fills."""
    nodes = [*nodes_within(graph)]
    if any(node.op.startswith(FILLS) for node in nodes):
        return
    kinds = {(one.attr["Tin"].type, one.attr["Tout"].type) for one in nodes if one.op == FIND}
    for handle in tensorflow_names.captured_by(graph):
        if handle.dtype == tf.resource:
            for kind in sorted(kinds):
                with suppress(tf.errors.OpError):  # another kind of table, or a variable
                    yield _entries(handle, *map(tf.as_dtype, kind))


def _entries(handle: tf.Tensor, key: tf.DType, value: tf.DType) -> str:
    """Return the size of a table, and a sum of its entries' hashes, whose order varies.

    Raises:
        OpError: the handle is no table from `key` to `value`. An export alone would not check that.
    """
    tf.raw_ops.LookupTableFindV2(
        table_handle=handle, keys=tf.zeros([1], key), default_value=tf.zeros([], value)
    )
    found = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=key, Tvalues=value)
    entries = tf.strings.join([*map(_as_texts, found)], "\t")
    total = tf.reduce_sum(tf.strings.to_hash_bucket_fast(entries, BUCKETS))
    return f"{entries.shape[0]} {int(total)}"


def _as_texts(parts: tf.Tensor) -> tf.Tensor:
    """Return a text for each row of a table's keys or values."""
    texts = _without_folders(parts) if parts.dtype == tf.string else tf.as_string(parts)
    return tf.strings.reduce_join(tf.reshape(texts, [texts.shape[0], -1]), 1, separator=",")


def _names_of(texts: np.ndarray) -> list[bytes]:
    return list(_without_folders(tf.constant(texts.reshape(-1))).numpy())


def _without_folders(texts: tf.Tensor) -> tf.Tensor:
    """Return texts without the folders of paths, which may differ by worker."""
    return tf.strings.regex_replace(texts, r"(?s)^.*/", "")


def _short(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… {digest_of(text)}"
