"""Small is a rule: files of at most 500 lines, functions of at most 60. Exceptions stand here, each with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE, MAX_FUNCTION = 500, 60
ALLOWED: dict[str, str] = {}
"""`file` or `file:function` -> the reason why it may be longer."""

SOURCES = sorted(path for room in ("src", "tools", "bench", "training") for path in (ROOT / room).rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    name, text = str(path.relative_to(ROOT)), path.read_text()
    long = [name] if text.count("\n") > MAX_FILE else []
    for function in functions(ast.parse(text)):
        length = (function.end_lineno or 0) - function.lineno + 1
        if length > MAX_FUNCTION:
            long.append(f"{name}:{function.name}")
    assert [each for each in long if each not in ALLOWED] == []


def test_every_exception_is_still_needed() -> None:
    names = {entry.split(":")[0] for entry in ALLOWED}
    assert names <= {str(path.relative_to(ROOT)) for path in SOURCES}
