"""What Keras does otherwise within a step of several replicas."""
