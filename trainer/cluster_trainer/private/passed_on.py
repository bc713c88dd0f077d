"""Errors that TensorFlow and Keras pass on as they are, with their types and what they know."""


class PassedOn(Exception):  # noqa: N818  a base of errors
    """An error of ours.

    Without these marks, a user's `tf.function` makes a StagingError of it, and a layer's call makes
    an error of it that has but a text. Then the exit code and the list of problems would be lost.
    Only the marks' presence counts.
    """

    # tensorflow/python/autograph/impl/api.py, read in 2.21.
    ag_pass_through = True
    # keras/src/utils/traceback_utils.py, read in 3.15.1.
    _keras_call_info_injected = True
