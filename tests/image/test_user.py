def test_default_user_is_trainer_and_not_root(run_bash):
    # The image's own user, not that of the test.
    shown = run_bash('echo "$(id -un) $(id -u):$(id -g) $HOME"', user=None)
    assert shown.strip() == "trainer 1000:1000 /home/trainer"


def test_image_names_its_user(workbench):
    assert workbench.inspect_image().attrs["Config"]["User"] not in {"", "root", "0", "0:0"}
