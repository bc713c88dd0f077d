"""Private names of Keras and of TensorFlow: all that the trainer uses, and nothing else.

No other module imports `keras.src` or `tensorflow.python`, or touches an attribute of theirs that
begins with an underscore. `tests/inside/test_private_names.py` lists what another version lacks.
"""
