"""The state of callbacks, and of data sources, in the checkpoints of a run.

The Keras callbacks with a state that matters are listed here. A callback of a user's own may have
two methods: `get_state()` returns numbers, texts, arrays, and lists and dictionaries of these.
`set_state(state)` gets the same after `on_train_begin`, and again after `on_epoch_begin` if the fit
resumes within an epoch, because callbacks then begin that epoch a second time.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.state.grown import Grown, lists_of
from cluster_trainer.private import any_backend

AN_ARRAY = "an array, number"
GROWN, HISTORY = "lists that grow, as text", "history/"


def taken(
    callbacks: Sequence[Any],
    arrays: list[np.ndarray],
    grown: MutableMapping[str, Grown] | None = None,
) -> dict[str, Any]:
    """Return the states of the callbacks that have one as JSON values; see `as_json`.

    If a state cannot be saved, it is omitted with a warning.

    Args:
        callbacks: the callbacks of a fit.
        arrays: see `as_json`.
        grown: the encoded lists of earlier checkpoints, by callback.
    """
    found, grown = {}, {} if grown is None else grown
    for name, callback in named(callbacks):
        before = len(arrays)
        try:
            state = _state(callback)
            lists = _growing(callback, state)
            if lists:
                text = grown.setdefault(name, Grown()).text(lists)
                state = {**_others(state, lists), GROWN: text}
            state = as_json(state, arrays)
        except Exception as error:  # noqa: BLE001  a user's own method
            del arrays[before:]
            warnings.warn(f"{name} is not kept in checkpoints: {error}", stacklevel=2)
        else:
            if state is not None:
                found[name] = state
    return found


def put_back(callbacks: Sequence[Any], states: Mapping[str, Any]) -> None:
    """Restore the state of each callback, if one of its class and position had one."""
    for name, callback in named(callbacks):
        before = f"{getattr(callback, 'formerly', '')} 1"
        if (state := states.get(name, states.get(before))) is None:
            continue
        if isinstance(state, dict) and GROWN in state:
            state = _with_lists(state)
        if has_state(callback):
            callback.set_state(state)
        else:
            vars(callback).update(state)


def _growing(callback: Any, state: Any) -> dict[str, Sequence[Any]]:
    if isinstance(callback, keras.callbacks.History) and not has_state(callback):
        history = state.get("history", {})
        return {
            "epoch": state.get("epoch", []),
            **{HISTORY + name: history[name] for name in history},
        }
    names = getattr(callback, "growing", ())
    return {name: state[name] for name in names if state and name in state}


def _others(state: Mapping[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name not in {*lists, "history"}}


def _with_lists(state: Mapping[str, Any]) -> dict[str, Any]:
    lists = lists_of(state[GROWN])
    history = {name.removeprefix(HISTORY): one for name, one in lists.items() if HISTORY in name}
    others = {name: one for name, one in lists.items() if HISTORY not in name}
    whole = {name: part for name, part in state.items() if name != GROWN} | others
    return whole | ({"history": history} if "epoch" in others else {})


def named(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each callback after a name: its class, and its number among callbacks of this class."""
    counted: Counter[str] = Counter()
    for callback in callbacks:
        kind = type(callback).__name__
        counted[kind] += 1
        yield f"{kind} {counted[kind]}", callback


def _state(callback: Any) -> Any:
    if has_state(callback):
        return callback.get_state()
    names = kept_names(callback)
    return {name: vars(callback)[name] for name in names if name in vars(callback)} or None


def kept_names(callback: Any) -> tuple[str, ...]:
    """Return the attributes that are saved for a callback of Keras's, or of a subclass."""
    known = any_backend.STATE_OF_CALLBACKS
    return next((names for kind, names in known.items() if isinstance(callback, kind)), ())


def has_state(callback: Any) -> bool:
    """Tell whether a callback offers a state of its own."""
    return hasattr(callback, "get_state") and hasattr(callback, "set_state")


def as_json(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a state as a JSON value; its arrays are appended to the list.

    Raises:
        TypeError: it holds something else.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): as_json(part, arrays) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(part, arrays) for part in value]
    array = np.array(value)  # a copy: it is written while the callback continues
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} is no number, text, array, list or dictionary")
    if array.ndim == 0 and array.dtype.kind in "biuf":
        return array.item()
    arrays.append(array)
    return {AN_ARRAY: len(arrays) - 1}


def from_json(value: Any, arrays: Sequence[np.ndarray]) -> Any:
    """Return the value that `as_json` got; tuples have become lists."""
    if isinstance(value, dict):
        if value.keys() == {AN_ARRAY}:
            return np.array(arrays[value[AN_ARRAY]])  # a copy: it may be restored twice
        return {name: from_json(part, arrays) for name, part in value.items()}
    if isinstance(value, list):
        return [from_json(part, arrays) for part in value]
    return value
