"""The variables that a step assigns, and what becomes of their values on several replicas."""
