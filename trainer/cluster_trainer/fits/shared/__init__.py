"""What workers, or several fits, have in common: data that they read, files that they write."""
