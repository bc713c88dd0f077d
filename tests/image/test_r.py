"""The images with and without R. tests/cluster/test_r.py trains in R."""

from operator import itemgetter

import pytest

pytestmark = pytest.mark.long  # the image takes more than a minute to build

FIND_R = "for tool in R Rscript; do command -v $tool; done; find / -xdev -name libR.so"
SIZE_OF_R = 100_000_000  # bytes, at least
ADD_UP = 'tf <- reticulate::import("tensorflow"); cat(tf$reduce_sum(c(1, 2, 4))$numpy()$item())'


def test_the_image_without_r_has_none(run_bash, image_with_r):
    assert run_bash(FIND_R, user="0:0").split() == []
    # This shows that the search works.
    found = run_bash(FIND_R, user="0:0", image=image_with_r).split()
    assert {"/usr/bin/R", "/usr/bin/Rscript", "/usr/lib/R/lib/libR.so"} <= set(found)


def test_r_lies_above_the_python_packages_which_both_images_share(workbench, image_with_r):
    """The layers are told apart by their sizes: Docker 20.10 may mix up their commands."""
    with_r, without = (
        workbench.client.images.get(image).history() for image in (image_with_r, workbench.image)
    )
    python = max(with_r, key=itemgetter("Size"))
    shared = max(without, key=itemgetter("Size"))
    assert itemgetter("Size", "Created")(python) == itemgetter("Size", "Created")(shared)
    above = [layer["Size"] for layer in with_r[: with_r.index(python)]]
    assert max(above) > SIZE_OF_R


def test_r_drives_tensorflow_for_any_user_on_a_read_only_root(run_to_end, image_with_r):
    ended = run_to_end(
        *["Rscript", "-e", ADD_UP],
        image=image_with_r,
        user="54321:54321",
        read_only=True,
        tmpfs={"/tmp": "mode=1777"},
        cap_drop=["ALL"],
        network_mode="none",
    )
    assert (ended.code, ended.out) == (0, "7"), ended


def test_an_error_in_r_ends_with_its_own_code(run_to_end, image_with_r):
    crash = ["Rscript", "-e", 'stop("on purpose")']
    ended = run_to_end(*crash, image=image_with_r, environment={"MAX_RESTARTS": "0"})
    assert ended.code == 1
    assert "Error: on purpose" in ended.err
