"""Finds the assignments in a step's graph, and whether they depend on the replica's share."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.over_ring import SUM
from cluster_trainer.engine.functions import nodes_of_functions
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import tensorflow_names

ADDS_TO_VARIABLE = (
    *("AssignAddVariableOp", "AssignSubVariableOp"),
    *("ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterNdAdd", "ResourceScatterNdSub"),
)
ADDS = ("AddV2", "Add")  # either operand
ADDS_TO_FIRST = ("Sub", "TensorScatterAdd", "TensorScatterSub")
PASSES_ON = ("Identity", "Cast", "EnsureShape")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
CALLS = (*BRANCHES, "While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall")
# Operations that advance a tf.random.Generator, by the beginnings of their types.
DRAWS = ("Rng", *(f"Stateful{one}" for one in ("Random", "Standard", "Truncated", "Uniform")))
# Operations whose results are the same on all replicas, by the beginnings of their types.
COLLECTIVES = ("CollectiveReduce", "CollectiveGather", "NcclAllReduce")


class Writes:
    """The assignments to some variables in a step that was just traced on a share of a batch.

    Args:
        batch: the share with which the step was traced.
        variables: the variables of interest.
        part: facts about the share.
    """

    def __init__(self, batch: Any, variables: Sequence[Any], part: step_context.Share) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        within = {id(outer): inner for outer, inner in self._graph.captures}
        handles = [(one, within.get(id(step_context.own(one).handle))) for one in variables]
        self._used = [(one, at) for one, at in handles if at is not None and writes_to(at)]
        leaves = [
            leaf for leaf in tf.nest.flatten(batch, expand_composites=True) if leaf is not None
        ]
        # Names of tensors, not of operations: one operation yields all parts of a batch.
        self._given = {one.name for one in leaves if part.scalars_differ or one.shape.rank != 0}
        drawn = [one for one in part.apart if getattr(one, "graph", None) is self._graph]
        self._drawn = {one.name for one in drawn}

    def dependent(self) -> list[Any]:
        """Return the variables whose new values depend on the share."""
        found: list[Any] = []
        while True:  # values computed from such a variable depend on the share, too
            names = {self._handle_of(one).op.name for one in found}
            made = self._made_from(self._given | names) if self._used else set()
            more = [
                one
                for one, handle in self._used
                if handle.op.name not in names
                and any(_is_made(value, made) for value in _assigned(handle))
            ]
            if not more:
                return found
            found += more

    def of_rows(self, rows: Collection[int | None]) -> list[Any]:
        """Return the variables to which a number of rows may be added or assigned.

        All assigned variables are returned but those whose assigned constants are no multiples of
        `rows`, the numbers of rows of a share's parts. An example is a counter of steps.
        """
        return [
            one
            for one, handle in self._used
            if not all(_is_other_constant(write, rows) for write in writes_to(handle))
        ]

    def number_of(self, variable: Any) -> int:
        """Return the number of the operations that assign a variable."""
        return len(writes_to(self._handle_of(variable)))

    @property
    def written(self) -> list[Any]:
        """The variables that the step assigns, whether or not the values depend on the share."""
        return [one for one, _ in self._used]

    def decided_by_share(self) -> bool:
        """Tell whether a branch that depends on the share decides if a variable is assigned."""
        writes = [write for _, handle in self._used for write in writes_to(handle)]
        branches = [one for one in writes if one.type in BRANCHES]
        made = self._made_in_order(()) if branches else set()
        return any(_is_made(one.inputs[0], made) for one in branches)

    def adds_to(self, variable: Any) -> bool:
        """Tell whether all assignments to a variable add something to its value."""
        handle = self._handle_of(variable)
        own = self._made_from({handle.op.name})
        return all(
            _are_others(list(write.inputs)[1:], own)
            if write.type in ADDS_TO_VARIABLE
            else write.type == "AssignVariableOp" and _is_sum(write.inputs[1], handle, own)
            for write in writes_to(handle)
        )

    def sums_in_branches(self, made_alike: Sequence[Any] = ()) -> bool:
        """Tell whether a sum over replicas is within a branch that depends on the share.

        If so, perhaps only some replicas sum, or they sum values of different steps.

        Args:
            made_alike: the variables that get the same value on all replicas when the step ends.
        """
        branches = [one for one in self._graph.get_operations() if one.type in BRANCHES]
        if not branches:
            return False
        alike = {self._handle_of(one).op.name for one in made_alike}
        made = self._made_in_order(alike)
        nodes = nodes_of_functions(self._graph.as_graph_def())
        return any(
            _is_made(one.inputs[0], made)
            and any(_sums(name, nodes) for name in _functions_of(one.node_def))
            for one in branches
        )

    def _made_in_order(self, alike: Collection[str]) -> set[str]:
        """Return the operations that use the share, its draws, or variables assigned from these.

        A variable in `alike`, given by its handle's name, is the same on all replicas until the
        step assigns it. Other variables, such as a metric's, may depend on an earlier step's share.
        """
        handles = [inner for _, inner in self._graph.captures if inner.dtype == tf.resource]
        written: dict[str, list[str]] = {}
        for handle in handles:
            for one in writes_to(handle):
                if one.type not in CALLS:  # a call may assign anything within
                    written.setdefault(one.name, []).append(handle.op.name)
        of_earlier: set[str] = set()
        while True:
            made = self._made_from(self._given | self._drawn | of_earlier, written)
            more = {one for names in written.values() for one in names if one in made} - {*alike}
            if more <= of_earlier:
                return made
            of_earlier |= more

    def _handle_of(self, variable: Any) -> tf.Tensor:
        return next(handle for one, handle in self._used if one is variable)

    def _made_from(
        self, names: set[str], written: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> set[str]:
        """Return the given names, and the names of all operations that use their results.

        Args:
            names: names of operations, of tensors, or of variables' handles.
            written: the handles of the variables that an operation assigns, by the operation's
                name. Operations that read these variables later use its results, too.
        """
        made = set(names)
        for one in self._graph.get_operations():  # each comes after its inputs
            if not _is_collective(one) and any(_is_made(given, made) for given in one.inputs):
                made.update([one.name, *written.get(one.name, ())])
        return made


def _is_made(value: tf.Tensor, made: Collection[str]) -> bool:
    return value.name in made or value.op.name in made


def _sums(name: str, nodes: Mapping[str, Sequence[Any]]) -> bool:
    """Tell whether a function, or one that it calls, sums over replicas."""
    return any(
        one.op.startswith(COLLECTIVES)
        or SUM in one.name
        or any(_sums(called, nodes) for called in _functions_of(one))
        for one in nodes.get(name, ())
    )


def _functions_of(node: Any) -> list[str]:
    """Return the names of the functions that a node calls."""
    values = [value for value in node.attr.values() if value.HasField("func")]
    lists = [value.list.func for value in node.attr.values() if value.HasField("list")]
    return [*(one.func.name for one in values), *(one.name for some in lists for one in some)]


def _is_other_constant(write: tf.Operation, rows: Collection[int | None]) -> bool:
    """Tell whether an operation draws random numbers, or assigns a constant that is no multiple.

    A boolean's constants never come from a number of rows.
    """
    if write.type.startswith(DRAWS):
        return True
    if write.type not in (*ADDS_TO_VARIABLE[:2], "AssignVariableOp"):
        return False
    constant = tf.get_static_value(write.inputs[1])
    if constant is None:
        return False
    return constant.dtype == bool or not any((constant % one == 0).any() for one in rows if one)


def _is_collective(operation: tf.Operation) -> bool:
    return operation.type.startswith(COLLECTIVES) or SUM in operation.name


def writes_to(handle: tf.Tensor) -> list[tf.Operation]:
    """Return the operations that assign to a variable, including calls of functions that do."""
    return [
        one
        for one in handle.consumers()
        if handle in tensorflow_names.get_read_write_resource_inputs(one)[1]
    ]


def _assigned(handle: tf.Tensor) -> list[tf.Tensor]:
    """Return the values that operations assign to a variable, or the inputs that determine them."""
    return [one for write in writes_to(handle) for one in write.inputs if one is not handle]


def _are_others(values: Iterable[tf.Tensor], own: set[str]) -> bool:
    return not any(one.op.name in own for one in values)


def _is_sum(value: tf.Tensor, handle: tf.Tensor, own: set[str]) -> bool:
    """Tell whether a value is a variable's value plus a value that does not depend on it.

    `own` has the names of the operations that use the variable's value.
    """
    operation = _passed_on(value)
    if operation.type == "ReadVariableOp":
        return operation.inputs[0] is handle
    if operation.type not in (*ADDS, *ADDS_TO_FIRST):
        return False
    first, *others = operation.inputs
    if operation.type in ADDS and first.op.name not in own:
        first, *others = reversed([first, *others])
    return _is_sum(first, handle, own) and _are_others(others, own)


def _passed_on(value: tf.Tensor) -> tf.Operation:
    """Return the operation that has computed a value, past operations that only pass it on."""
    operation = value.op
    while operation.type in PASSES_ON:
        operation = operation.inputs[0].op
    return operation
