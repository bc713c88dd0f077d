"""Users cannot install into the image by accident: its only pip is for a requirements.txt."""

FIND_MODULES = """
import importlib.util, json
names = ("json", "pip", "uv", "ensurepip", "setuptools")
print(json.dumps([name for name in names if importlib.util.find_spec(name)]))
"""


def test_python_has_no_installer(run_python):
    # json shows that the search works.
    assert run_python(FIND_MODULES) == ["json"]


def test_image_has_no_installer_on_the_path(run_bash):
    # python shows that the search works.
    search = "for tool in python pip pip3 uv uvx conda; do command -v $tool; done"
    assert [path.rpartition("/")[2] for path in run_bash(search).split()] == ["python"]


def test_the_only_pip_is_the_entrypoints_with_its_licence(run_bash):
    find = "find / -xdev -path '*/pip/__main__.py' 2>/dev/null"
    assert run_bash(find, user="0:0").split() == ["/opt/pip/pip/__main__.py"]
    assert "MIT" in run_bash("cat /opt/pip/pip-*.dist-info/METADATA")
    assert run_bash("cat /opt/pip/pip-*.dist-info/licenses/LICENSE.txt").startswith("Copyright")
