"""One module for each kind of file: the values of its template."""
