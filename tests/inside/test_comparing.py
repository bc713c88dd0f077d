"""To compare data draws nothing from anybody's generator, and takes nothing back that was drawn."""

import numpy as np
import pytest

from cluster_trainer.engine.data import comparing


class Alone:
    """Workers who have all found the same."""

    count = rank = 1

    def gather(self, number, what):
        del what
        return [number]


class Draws:
    """A source that draws when it is read, or beside which another thread draws."""

    doubtful = ()

    def __init__(self, asks_users):
        self.asks_users = asks_users

    def found(self):
        return {"drawn": str(np.random.random())}  # noqa: NPY002  users draw from it


@pytest.mark.parametrize("asks_users", [True, False])
def test_only_what_users_code_draws_is_taken_back(asks_users):
    np.random.seed(1)  # noqa: NPY002
    first, second = np.random.random(2)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    comparing.refuse_others(Alone(), Draws(asks_users), {}, "fit")
    assert np.random.random() == (first if asks_users else second)  # noqa: NPY002
