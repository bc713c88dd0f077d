"""Changes Keras's behaviour within a step of several replicas."""
