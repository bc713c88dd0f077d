"""Finds mutants: the places in the product's code that can be changed, and the changes.

Changes are made at positions of the syntax tree, so all other text stays. Docstrings, annotations,
decorators, messages (log lines, warnings, printed text, f-strings) and the arguments of errors are
not changed.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise


class Kind(StrEnum):
    """The change that a mutant makes."""

    COMPARISON = "a comparison is turned"
    CONSTANT = "a constant is changed"
    CONDITION = "a condition is negated"
    RETURN = "another value is returned"
    CALL = "a call is removed"
    LOGIC = "`and` and `or` are swapped"
    SIGN = "`+` and `-` are swapped"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file become `text`."""

    path: str
    line: int
    kind: Kind
    place: str
    """The qualified name of its function or class; "" for the module."""
    at_import: bool
    """Whether it runs when its module is imported, not when a function is called."""
    start: int
    end: int
    text: str
    number: int = 0
    """The number of the change among those of this kind at this place."""

    @property
    def name(self) -> str:
        """Its place, which does not depend on changes elsewhere in the file."""
        return f"{self.path}:{self.place}:{self.kind.name.lower()}:{self.number}"


Change = tuple[Kind, int, int, str]
"""A change: its kind, the bytes that it replaces, and the new text."""
MESSAGES = {"print", "say", "complain", "warn", "warn_explicit", "_warn", "_say", "_print"}
LOGS = {"log", "_log", "logger", "logging", "warnings"}
TYPES = {"cast", "TypeVar", "NewType", "ParamSpec", "getLogger"}
TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATOR = re.compile(rb"<=|>=|==|!=|<|>|is\s+not\b|is\b|not\s+in\b|in\b|and\b|or\b|\+|-")
WORD = re.compile(r"[A-Za-z_][\w.-]*")
NOT_SPACE = re.compile(rb"(?:[\s()\\]|#[^\n]*\n)*")


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file, in the order of their places. A few of them may not compile."""
    found: list[Mutant] = []
    numbers: dict[str, int] = {}
    for mutant in sorted(_Finder(path, source).mutants(), key=lambda one: (one.start, one.kind)):
        number = numbers.get(mutant.name, 0)
        numbers[mutant.name] = number + 1
        found.append(replace(mutant, number=number))
    return found


def changed(source: bytes, mutant: Mutant) -> bytes:
    """Return a file's text after the change."""
    return source[: mutant.start] + mutant.text.encode() + source[mutant.end :]


def compiles(source: bytes) -> bool:
    """Whether a changed file is valid Python."""
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def in_random_order(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """Return the mutants in an order in which the kinds take turns.

    The order within a kind depends only on the seed and the names. So if other code changes, the
    first mutants hardly change.
    """

    def lot(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()

    rounds: list[tuple[int, bytes, Mutant]] = []
    for kind in Kind:
        of_kind = sorted((one for one in mutants if one.kind is kind), key=lot)
        rounds += [(number, lot(one), one) for number, one in enumerate(of_kind)]
    return [one for _, _, one in sorted(rounds, key=lambda each: each[:2])]


class _Finder:
    """Finds the mutants of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Return the mutants, unordered and without numbers."""
        yield from self._below(ast.parse(self._source), place="", at_import=True)

    def _below(self, node: ast.AST, *, place: str, at_import: bool) -> Iterator[Mutant]:
        if _is_left_alone(node):
            return
        for kind, start, end, text in self._changes(node):
            yield Mutant(
                path=self._path,
                line=self._source.count(b"\n", 0, start) + 1,
                kind=kind,
                place=place,
                at_import=at_import,
                start=start,
                end=end,
                text=text,
            )
        for child, is_body in _children(node):
            is_code = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from self._below(
                child,
                place=_place(place, child),
                at_import=at_import and not (is_code and is_body),
            )

    def _changes(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare() | ast.BoolOp() | ast.BinOp():
                yield from self._of_operators(node)
            case ast.Constant(value=value):
                text = _other(value)
                if text:
                    yield (Kind.CONSTANT, *self._span(node), text)
            case ast.Return(value=ast.expr() as value):
                if not (isinstance(value, ast.Constant) and value.value is None):
                    yield (Kind.RETURN, *self._span(value), "None")
            case ast.Expr(value=ast.Call() as call) if not _is_left_alone(call):
                yield (Kind.CALL, *self._span(node), "None")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if not isinstance(test, ast.Constant | ast.Compare):
                    yield self._negated(test)
            case ast.comprehension(ifs=tests):
                yield from map(self._negated, tests)

    def _of_operators(self, node: ast.Compare | ast.BoolOp | ast.BinOp) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=operands):
                for op, pair in zip(ops, pairwise([left, *operands]), strict=True):
                    yield (Kind.COMPARISON, *self._operator(*pair), TURNED[type(op)])
            case ast.BoolOp(op=op, values=values):
                text = "or" if isinstance(op, ast.And) else "and"
                for pair in pairwise(values):
                    yield (Kind.LOGIC, *self._operator(*pair), text)
            case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=right):
                if not _is_text(left) and not _is_text(right):
                    text = "-" if isinstance(op, ast.Add) else "+"
                    yield (Kind.SIGN, *self._operator(left, right), text)

    def _negated(self, test: ast.expr) -> Change:
        start, end = self._span(test)
        return Kind.CONDITION, start, end, f"(not ({self._source[start:end].decode()}))"

    def _span(self, node: ast.AST) -> tuple[int, int]:
        position: ast.expr = node  # type: ignore[assignment]  # all that is asked for has one
        assert position.end_lineno is not None  # noqa: S101 ast.parse sets them
        assert position.end_col_offset is not None  # noqa: S101
        start = self._starts[position.lineno - 1] + position.col_offset
        return start, self._starts[position.end_lineno - 1] + position.end_col_offset

    def _operator(self, left: ast.expr, right: ast.expr) -> tuple[int, int]:
        """Return the position of the operator between two operands."""
        after, before = self._span(left)[1], self._span(right)[0]
        skipped = NOT_SPACE.match(self._source, after, before)
        found = OPERATOR.match(self._source, skipped.end() if skipped else after, before)
        if found is None:
            raise ValueError(f"{self._path}: no operator in {self._source[after:before]!r}")
        return found.span()


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Return the nodes below a node that may be changed, and whether a function runs them."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, name == "body"


def _place(place: str, child: ast.AST) -> str:
    if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return f"{place}.{child.name}".lstrip(".")
    return place


def _is_left_alone(node: ast.AST) -> bool:
    """Whether it is a docstring, a message, code for type checkers only, or an error's argument."""
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="TYPE_CHECKING" | "__all__" | "__slots__")]):
            return True
        case ast.Call(func=function):
            return _is_of_messages(function)
    return False


def _is_of_messages(function: ast.expr) -> bool:
    match function:
        case ast.Name(id=name):
            return name in MESSAGES | TYPES or name.endswith(("Error", "Problem"))
        case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
            return owner in LOGS or name in MESSAGES | TYPES
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _other(value: object) -> str:
    """Return the source of another constant; "" if it is a sentence, or if there is none."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int | float):
        return repr(value + 1)
    if isinstance(value, str) and WORD.fullmatch(value):
        return repr(f"{value}_")
    return ""
