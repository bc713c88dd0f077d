"""`python -m trainer.report RUN…`: one page about a run, or several beside each other."""
