"""Changes of Keras's behaviour within a step of several replicas."""
