"""`python -m trainer.report RUN…`: one page about a run, or about several side by side."""
