"""`export KIND`: prints a file that runs this image under a scheduler."""
