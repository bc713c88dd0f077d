"""The scripts that `selftest` runs, each as a user would run it."""
