"""What `import rollbook` must not load: it is paid by every command and every worker."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "aiohttp",
    "asyncio",
    "click",
    "gguf",
    "jinja2",
    "jsonschema",
    "msgspec",
    "numpy",
    "pyarrow",
    "rich",
    "tokenizers",
    "xllamacpp",
    "zstandard",
}


def loaded_by(code: str) -> set[str]:
    script = (
        f"import json, sys; before = set(sys.modules); {code}; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_heavy_and_no_room() -> None:
    found = loaded_by("import rollbook")
    assert found & HEAVY == set()
    assert {name for name in found if name.startswith("rollbook")} == {"rollbook"}


def test_a_name_loads_its_own_room_only() -> None:
    found = loaded_by("from rollbook import Task")
    assert "rollbook.trace" in found
    assert found & {"tokenizers", "jinja2", "zstandard", "click", "rich", "rollbook.run", "rollbook.store"} == set()


def test_the_command_line_loads_a_command_only_when_it_is_used() -> None:
    found = loaded_by("import rollbook.cli")
    assert found & {"numpy", "tokenizers", "jinja2", "zstandard", "rollbook.run", "rollbook.store"} == set()


def test_no_public_name_and_no_command_needs_an_extra() -> None:
    extras = {"aiohttp", "obstore", "openai_harmony", "prometheus_client", "pyarrow", "ray", "renderers", "xllamacpp"}
    extras |= {"matplotlib", "torch", "transformers"}
    code = (
        "import importlib, rollbook; [getattr(rollbook, name) for name in rollbook.__all__]; "
        "from rollbook.cli.app import COMMANDS; [importlib.import_module(name) for name in COMMANDS.values()]"
    )
    assert loaded_by(code) & extras == set()
