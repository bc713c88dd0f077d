"""Objects that workers, or several fits, share: data that they read, files that they write."""
