FIND_MODULES = """
import importlib.util, json
names = ("json", "pip", "uv", "ensurepip", "setuptools")
print(json.dumps([name for name in names if importlib.util.find_spec(name)]))
"""


def test_python_has_no_installer(run_python):
    # json shows that the search finds what is there.
    assert run_python(FIND_MODULES) == ["json"]


def test_image_has_no_installer_on_the_path(run_bash):
    assert run_bash("for tool in pip pip3 uv uvx conda; do command -v $tool; done").split() == []
