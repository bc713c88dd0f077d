"""Copies the image and the code to the machines, and the results from them."""
