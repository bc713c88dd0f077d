"""The display of a run: lines, the line that is redrawn, and which worker prints what."""
