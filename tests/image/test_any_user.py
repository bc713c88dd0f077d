import pytest

WRITE_EVERYWHERE = """
import getpass, json, pathlib, tempfile
home = pathlib.Path.home()
for folder in (home, "/runs", "/data", "/workspace", tempfile.gettempdir()):
    (pathlib.Path(folder) / "probe").write_text("x")
print(json.dumps([getpass.getuser(), str(home)]))
"""


@pytest.mark.parametrize("user", ["1000:1000", "54321:54321", "54321:0", "0:0"])
def test_any_user_id_can_write_where_runs_write(run_python, user):
    assert run_python(WRITE_EVERYWHERE, user=user) == ["trainer", "/home/trainer"]


def test_user_without_capabilities_cannot_change_the_image(run_bash):
    # The probe shows that the search works.
    find = "touch /tmp/probe; find /opt /usr /etc /tmp/probe -xdev -writable ! -type l"
    assert run_bash(find, user="54321:54321").split() == ["/tmp/probe"]
