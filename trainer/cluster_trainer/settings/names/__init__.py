"""The names that settings may have, known without importing TensorFlow."""
