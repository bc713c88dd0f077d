import pytest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("HOME", "/home/trainer"),
        ("USER", "trainer"),
        ("LOGNAME", "trainer"),
    ],
)
def test_image_sets(workbench, name, value):
    assert f"{name}={value}" in workbench.inspect_image().attrs["Config"]["Env"]


def test_python_is_the_images_own_environment(run_bash):
    assert run_bash("command -v python; pwd").split() == ["/opt/venv/bin/python", "/workspace"]


def test_pythonpath_is_left_to_the_user(workbench):
    environ = workbench.inspect_image().attrs["Config"]["Env"]
    assert not [line for line in environ if line.startswith(("PYTHONPATH=", "LD_LIBRARY_PATH="))]
