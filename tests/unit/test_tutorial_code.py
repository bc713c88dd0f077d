"""examples/tutorials has the code of the four-machine tutorial, as its text prints it."""

from hashlib import sha256
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples/tutorials/four-machines"
# SHA-256 of the Python blocks that the tutorial's text prints, joined by empty lines. local.py is
# its section "Local". train.py is "Distributed" without the first block, which sets TF_CONFIG, and
# begins with the `import tensorflow as tf` of "Local".
PRINTED = {
    "local.py": "3a9d42e75a4dd949856e8d0e7b809bc6e9d622ba376ca343b16cc965ad4e086a",
    "train.py": "e570b279b8644c1e9126c445c17dc85cc48a735953748765c66a8c677fcbcc2b",
}


@pytest.mark.parametrize("script", PRINTED)
def test_nothing_of_the_tutorials_code_was_changed(script):
    head, _, code = (EXAMPLES / script).read_text().partition("\n\n")
    assert all(line.startswith("#") for line in head.splitlines())
    assert sha256(code.encode()).hexdigest() == PRINTED[script]
