"""Writes the tables of the documents that are generated from the code.

`make reference` runs it, after a change of a setting, a variable or an import. A test fails if a
table is out of date.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "trainer")]

from cluster_trainer.settings import config, groups, refusals  # noqa: E402
from cluster_trainer.settings.names.spellings import variable_of  # noqa: E402
from entrypoint.settings.environment_variable import CLUSTER_VARIABLES, EnvironmentVariable  # noqa: E402
from entrypoint.settings.options import VARIABLES  # noqa: E402

PAGES = (
    "docs/reference/variables.md",
    "docs/reference/settings.md",
    "docs/explanation/how-it-works.md",
)
PACKAGES = {"entrypoint": ROOT / "entrypoint", "cluster_trainer": ROOT / "trainer/cluster_trainer"}
OF_THE_CLUSTER = (*CLUSTER_VARIABLES, "ENV_FILE")
GROUPS = {
    "model and data": "model",
    "results": "run_dir",
    "devices and network": "strategy",
    "length and batch": "epochs",
    "compiling": "optimizer",
    "precision": "precision",
    "checkpoints": "checkpoint_steps",
    "records": "tensorboard",
    "time": "steps_per_call",
}
"""Each table of settings, and its first setting."""
MARK = re.compile(r"<!-- table: ([a-z_ ]+) -->\n.*?<!-- /table -->", re.DOTALL)


def row(*cells: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def table(head: Iterable[str], rows: Iterable[str]) -> str:
    """Return a whole table."""
    head = [*head]
    return "\n".join([row(*head), row(*["---"] * len(head)), *rows])


def variables(names: Iterable[str]) -> str:
    """Return the table of these variables of the entrypoint."""
    rows = (_of_variable(VARIABLES[name]) for name in names)
    return table(["variable", "default", "what it does", "accepted", "example"], rows)


def _of_variable(variable: EnvironmentVariable) -> str:
    default = f"`{variable.default}`" if variable.default else ""
    example = f"`{variable.example}`"
    return row(f"`{variable.name}`", default, variable.purpose, variable.accepted, example)


def settings(names: Iterable[str]) -> str:
    """Return the table of these settings of the trainer."""
    return table(["variable", "default", "what it does", "accepted"], map(_of_setting, names))


def _of_setting(name: str) -> str:
    field = config.TrainerConfig.model_fields[name]
    default = "" if field.default is None else f"`{field.default}`"
    accepted = refusals.ACCEPTED.get(name, "")
    return row(f"`{variable_of(name)}`", default, str(field.description), accepted)


def grouped() -> Mapping[str, list[str]]:
    """Return the settings of each table, in the order of the code."""
    groups: dict[str, list[str]] = {}
    of_first = {first: group for group, first in GROUPS.items()}
    names: list[str] = []
    for name in config.setting_names():
        if name in of_first:
            names = groups.setdefault(of_first[name], [])
        names.append(name)
    return groups


def listed(names: Iterable[str]) -> str:
    """Return a list of settings for a sentence, in the order of the tables."""
    chosen = {*names}
    return ", ".join(f"`{variable_of(name)}`" for name in config.setting_names() if name in chosen)


def imports(path: Path, package: str) -> Iterator[str]:
    """Return the modules of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            yield str(node.module).split(".")[1]


def modules_of(package: str) -> dict[str, set[str]]:
    """Return each top-level module of a package, and its imports."""
    found: dict[str, set[str]] = {}
    for path in PACKAGES[package].rglob("*.py"):
        module = path.relative_to(PACKAGES[package]).with_suffix("").parts[0]
        found.setdefault(module, set()).update(set(imports(path, package)) - {module})
    del found["__init__"]
    return found


def layers_of(modules: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the layer of each module: one above the highest of its imports.

    Raises:
        ValueError: modules import each other in a circle.
    """
    layers: dict[str, int] = {}
    while len(layers) < len(modules):
        ready = [name for name in modules if name not in layers and modules[name] <= {*layers}]
        if not ready:
            circle = ", ".join(sorted({*modules} - {*layers}))
            raise ValueError(f"a circle of imports among these modules, or those above: {circle}")
        layers |= {
            name: 1 + max((layers[known] for known in modules[name]), default=0) for name in ready
        }
    return layers


def modules(package: str) -> str:
    """Return the table of a package's modules: layer, purpose, imports."""
    known = modules_of(package)
    layers = layers_of(known)
    lines = [
        row(str(layers[name]), *_of_module(package, name), ", ".join(sorted(known[name])))
        for name in sorted(known, key=lambda name: (layers[name], name))
    ]
    return table(["layer", "module", "purpose", "imports"], lines)


def _of_module(package: str, name: str) -> tuple[str, str]:
    folder = PACKAGES[package] / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    first_line = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
    shown = f"`{package}/{name}{'/' if folder.is_dir() else '.py'}`"
    return shown, first_line.replace("|", "\\|")


@cache
def contents() -> dict[str, str]:
    """Return the content of each marked place."""
    others = [name for name in VARIABLES if name not in OF_THE_CLUSTER]
    return {
        "cluster variables": variables(OF_THE_CLUSTER),
        "entrypoint variables": variables(others),
        **{f"settings of {group}": settings(names) for group, names in grouped().items()},
        "settings of scripts": f"{listed(groups.OF_SCRIPTS)}.",
        "settings of each worker": f"{listed(groups.OWN_TO_EACH_WORKER)}.",
        **{f"modules of {package}": modules(package) for package in PACKAGES},
    }


def made(text: str, found: Mapping[str, str]) -> str:
    """Return a page with up-to-date tables."""
    return MARK.sub(
        lambda mark: f"<!-- table: {mark[1]} -->\n{found[mark[1]]}\n<!-- /table -->", text
    )


def main() -> None:
    """Write the tables."""
    found = contents()
    for page in PAGES:
        path = ROOT / page
        path.write_text(made(path.read_text(), found))


if __name__ == "__main__":
    main()
