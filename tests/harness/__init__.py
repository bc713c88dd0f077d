"""Helpers of the tests of the image and of clusters: containers, Compose, waiting, leftovers."""
