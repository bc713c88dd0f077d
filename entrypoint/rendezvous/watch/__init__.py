"""After the gate: watches whether the peers reach TensorFlow's cluster, which waits for them."""
