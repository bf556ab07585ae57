"""Tables of the documentation say what the code says."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import click
import pytest

from rollbook import _NAMES
from rollbook.audit import CHECKS
from rollbook.cli import app
from rollbook.export.fields import scalars
from rollbook.models import CATALOGUE
from rollbook.trace import EndingRules, ParseStatus, Reason, Retry, samples
from tests.docs.blocks import PAGES, ROOT
from tests.export.build import sound

DOCS = ROOT / "docs"
WIDE = {
    DOCS / "audit.md": "its table holds the sentences of the code",
    DOCS / "benchmarks.md": "its table is written by the benchmark",
}
"""Page -> why its tables may be wider than 100 columns."""
ARRAYS = {"token_ids", "sampled", "loss_mask", "logprobs", "policy_version", "turn_id", "advantages"}


def rows(page: Path, head: str) -> list[list[str]]:
    """The cells of the table that begins with `head`, back-ticks taken off."""
    table = page.read_text(encoding="utf-8").partition(f"{head}\n")[2].partition("\n\n")[0]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


def test_every_ending_has_its_row_and_default_rule() -> None:
    rules = EndingRules()
    expected = []
    for reason in Reason:
        rule = rules.rule(reason)
        unbound = isinstance(rule, Retry) and rule.times > 1000
        text = "retry" if unbound else rules.describe(reason).partition(": ")[2]
        expected.append([reason, reason.kind, text])
    found = [row[:3] for row in rows(DOCS / "endings.md", "| reason | kind | default rule | when |")]
    assert found == expected


def test_every_parse_status_has_its_row() -> None:
    found = rows(DOCS / "rooms" / "render.md", "| status | what is wrong |")
    assert [row[0] for row in found] == [str(status) for status in ParseStatus]


def test_the_changelog_counts_the_checks() -> None:
    assert f"{len(CHECKS)} checks" in (ROOT / "CHANGELOG.md").read_text()


def test_every_field_of_an_export_has_its_row() -> None:
    trace = sound()
    (sample,) = samples(trace)
    cells = [row[0] for row in rows(DOCS / "export.md", "| field | type | meaning |")]
    named = [name.strip("` ") for cell in cells for name in cell.split(",")]
    assert sorted(named) == sorted(ARRAYS | scalars(sample).keys())


def test_every_command_and_option_is_named() -> None:
    text = (ROOT / "README.md").read_text().partition("## The command line")[2].partition("## ")[0]
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        assert f"rollbook {name}" in text
        options = [option for each in command.params for option in each.opts if option.startswith("--")]
        assert [option for option in options if not re.search(rf"{option}\b", text)] == [], name


def test_every_public_name_is_somewhere() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in _NAMES if not re.search(rf"\b{name}\b", text)] == []


def test_every_room_has_a_page_and_the_index_names_it() -> None:
    source = ROOT / "src" / "rollbook"
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    assert {page.stem for page in (DOCS / "rooms").glob("*.md")} == rooms
    index = (DOCS / "index.md").read_text()
    assert [room for room in sorted(rooms) if f"(rooms/{room}.md)" not in index] == []


def test_every_dependency_has_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.match(r"[\w-]+", each)[0].lower() for each in wanted}  # pyright: ignore[reportOptionalSubscript]
    text = (DOCS / "licences.md").read_text()
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
    known = {"BSD", "MIT", "Apache", "MPL", "Python Software Foundation"}
    for name in sorted(names - {"ray"}):  # an environment of its own has it
        about = metadata.metadata(name)
        said = f"{about.get('License-Expression')} {about.get('License')} {about.get_all('Classifier')}"
        if not any(licence in said for licence in known):  # the fields name none: the licence itself does
            files = metadata.files(name) or []
            said += "".join(file.read_text()[:200] for file in files if file.name.startswith("LICENSE"))
        line = next(line for line in text.splitlines() if re.search(rf"\b{name}\b", line))
        assert any(licence in said and licence in line for licence in known) or "free of charge" in said, name


def test_the_model_is_the_one_that_is_fetched() -> None:
    text = (DOCS / "licences.md").read_text()
    for model in CATALOGUE.values():
        package, _, version = model.requirement.partition("==")
        assert f"`{package}` {version}" in " ".join(text.split())
        assert model.licence == "apache-2.0"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_and_tables_fit(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [line for line in text.splitlines() if line.startswith("|") and len(line) > 100] == [] or page in WIDE
