"""After the gate: watches whether the peers join TensorFlow's cluster."""
