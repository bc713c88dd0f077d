"""The names that a function's code reads and assigns, from its instructions."""

import dis
from dataclasses import dataclass
from functools import cache
from types import CodeType

OPERATIONS = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), "LOAD_GLOBAL"),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), "LOAD_ATTR"),
    **dict.fromkeys(("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"), "STORE"),
}


@dataclass(frozen=True)
class Names:
    """The names in a function's code, and in the functions within it.

    Attributes:
        globals: those that it reads.
        attributes: those that it reads, of whatever object.
        stored: attributes, globals and variables of outer functions that it assigns.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    stored: frozenset[str]


@cache
def names_in(code: CodeType) -> Names:
    """Return the names in some code."""
    kinds: dict[str, set[str]] = {"LOAD_GLOBAL": set(), "LOAD_ATTR": set(), "STORE": set()}
    waiting = [code]
    while waiting:
        one = waiting.pop()
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
        for instruction in dis.get_instructions(one):
            if kind := OPERATIONS.get(instruction.opname):
                kinds[kind].add(instruction.argval)
    return Names(*(frozenset(names) for names in kinds.values()))
