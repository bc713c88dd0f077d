"""The images with and without R. tests/cluster/test_r.py trains in R."""

import pytest

pytestmark = pytest.mark.long  # the image takes more than a minute to build

FIND_R = "for tool in R Rscript; do command -v $tool; done; find / -xdev -name libR.so"
ADD_UP = 'tf <- reticulate::import("tensorflow"); cat(tf$reduce_sum(c(1, 2, 4))$numpy()$item())'


def test_the_image_without_r_has_none(run_bash, image_with_r):
    assert run_bash(FIND_R, user="0:0").split() == []
    # This shows that the search works.
    found = run_bash(FIND_R, user="0:0", image=image_with_r).split()
    assert {"/usr/bin/R", "/usr/bin/Rscript", "/usr/lib/R/lib/libR.so"} <= set(found)


def test_r_lies_above_the_python_packages_which_both_images_share(workbench, image_with_r):
    newest_first = workbench.client.images.get(image_with_r).history()
    steps = [layer["CreatedBy"] for layer in newest_first]
    r, python = (
        next(number for number, step in enumerate(steps) if part in step)
        for part in ("r-base-core", "requirements.txt")
    )
    assert r < python


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
