"""The base of our errors, which TensorFlow and Keras raise again unchanged."""


class PassedOn(Exception):  # noqa: N818  a base of errors
    """An error that a user's `tf.function` and a layer's call raise again unchanged.

    AutoGraph converts other errors to a StagingError, and Keras to an error with a text only. The
    exit code and the list of problems would be lost. Only the presence of these attributes counts.
    """

    # tensorflow/python/autograph/impl/api.py, read in 2.21.
    ag_pass_through = True
    # keras/src/utils/traceback_utils.py, read in 3.15.1.
    _keras_call_info_injected = True
