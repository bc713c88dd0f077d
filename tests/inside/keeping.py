"""Fits that a test runs by a function of its own, where a script's would be kept."""

from contextlib import contextmanager
from unittest import mock

from cluster_trainer.fits import fit


@contextmanager
def fits_run_by(around):
    """Let the `fit` that is called inside be run by `around(run, given, call)`."""

    def run_by(_, run, given, call, __):
        return around(run, given, call)

    with mock.patch.object(fit, "fit", run_by):
        yield
