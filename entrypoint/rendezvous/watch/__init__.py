"""After the gate: whether the peers come as far as TensorFlow does, which waits for them."""
