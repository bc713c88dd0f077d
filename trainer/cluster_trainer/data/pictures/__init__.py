"""The pictures of a data set of TensorFlow Datasets: decoded, resized and cached."""
