"""Objects that workers, or several fits, share: data that are read, and files that are written."""
