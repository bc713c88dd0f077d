"""Stands in for PyTorch, which the image lacks: a loader with the interface that Keras asks for."""

LOADER = """
import numpy as np


class Tensor(np.ndarray):
    def cpu(self):
        return self


class SequentialSampler:
    pass


class DataLoader:
    def __init__(self, rows, batch_size, shuffle, seed=None):
        self.dataset, self.batch_size, self._draws = rows, batch_size, np.random.default_rng(seed)
        self.sampler = None if shuffle else SequentialSampler()

    def __len__(self):
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self):
        rows = np.arange(len(self.dataset))
        if self.sampler is None:
            self._draws.shuffle(rows)
        for start in range(0, len(rows), self.batch_size):
            picked = self.dataset[rows[start : start + self.batch_size]]
            yield [picked.view(Tensor), np.ones((len(picked), 1), "float32").view(Tensor)]
"""


def put(folder):
    """Write the package `torch` into a folder; return the folder."""
    package = folder / "torch" / "utils" / "data"
    package.mkdir(parents=True)
    for above in (package.parent, package.parent.parent):
        (above / "__init__.py").touch()
    (package / "__init__.py").write_text(LOADER)
    return folder
