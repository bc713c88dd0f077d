"""What people see of a run: lines, the line that is drawn anew, who of the workers speaks."""
