"""Tells whether this process can read a fit's data again, to resume after a loss."""

import inspect
from typing import Any

import keras

from cluster_trainer.engine.data.sources.choice import may_begin_again
from cluster_trainer.private import keras_names


class Rereading:
    """The data of one fit.

    Args:
        model: the model that is trained on them.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._training = self._validation = True

    def note(self, given: inspect.BoundArguments) -> None:
        """Note the data that the fit was given."""
        self._training = may_begin_again(given.arguments.get("x"))
        tests = keras.utils.unpack_x_y_sample_weight(given.arguments.get("validation_data"))
        self._validation = may_begin_again(tests[0])

    def is_possible(self, iterator: Any) -> bool:
        """Tell whether all of the data can be read again.

        Args:
            iterator: the iterator of the training batches; None: there is none yet.
        """
        tests = self._tests
        training = iterator.source.begins_again if iterator else self._training
        validation = self._validation and (tests is None or tests.source.begins_again)
        return bool(training and validation)

    def let_go(self, iterator: Any) -> None:
        """Release the data of the fit.

        Args:
            iterator: the iterator of the training batches; None: there was none.
        """
        if iterator:
            self._training = iterator.source.begins_again
        if self._tests is not None:  # of a fit that has failed
            self._validation &= self._tests.source.begins_again
            self._tests.abandon()
            delattr(self._model, keras_names.ITERATOR_OF_VALIDATION)

    @property
    def _tests(self) -> Any:
        """The iterator of the validations' batches; None if there was no validation yet."""
        return getattr(self._model, keras_names.ITERATOR_OF_VALIDATION, None)
