"""What the tests of the image and of clusters share: containers, Compose, waiting, leftovers."""
