"""All private names of Keras and TensorFlow that the trainer uses.

No other module imports `keras.src` or `tensorflow.python`, or uses their attributes that begin with
an underscore. `tests/inside/test_private_names.py` lists the names that another version lacks.
"""
