import tomllib
from pathlib import Path

import pytest

from rollbook.audit import CHECKS, DEFAULT_GATE, Gate, Status
from rollbook.errors import ConfigError
from rollbook.trace import Reason
from tests.audit.build import Build, check, sound

MUST_BE_ZERO = {
    "begin_tokens",
    "control_in_content",
    "separators",
    "alignment",
    "executed_after_fault",
    "baseline_errors",
    "duplicate_ids",
    "tools_unrendered",
    "prompt_tokens",
    "logprob_kind",
    "logprobs_absent",
    "endings",
}


def test_what_must_be_zero_is_a_gate_by_default() -> None:
    assert {row.name for row in CHECKS if DEFAULT_GATE.limit(row) == 0} == MUST_BE_ZERO
    assert len({row.name for row in CHECKS}) == len(CHECKS)


def test_a_toml_document_gives_a_gate() -> None:
    text = 'must_judge = ["drift"]\nfindings = 3\n[limits]\ndrift = 0.01\nerror_rate = "none"\n'
    gate = Gate.from_mapping(tomllib.loads(text))
    assert gate == Gate(limits={"drift": 0.01, "error_rate": None}, must_judge=("drift",), findings=3)


def test_a_limit_is_the_most_that_is_allowed() -> None:
    traces = sound("a"), Build("b").end(Reason.HARNESS, None)
    assert check("error_rate", *traces, gate=Gate(limits={"error_rate": 0.5})).status is Status.OK
    assert check("error_rate", *traces, gate=Gate(limits={"error_rate": 0.49})).status is Status.BROKE


def test_a_limit_can_be_lifted() -> None:
    trace = Build().end(Reason.HARNESS, None)
    assert check("error_rate", trace).status is Status.BROKE
    assert check("error_rate", trace, gate=Gate(limits={"error_rate": None})).status is Status.INFO


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ({"limit": {}}, "unknown key 'limit'"),
        ({"limits": {"drfit": 0.1}}, r"'drfit', which is not a check \(did you mean 'drift'\?\)"),
        ({"must_judge": ["all"]}, "'all', which is not a check"),
        ({"limits": {"drift": -0.1}}, "want a finite number"),
        ({"limits": {"drift": float("nan")}}, "want a finite number"),
        ({"limits": {"drift": float("inf")}}, "want a finite number"),
        ({"limits": {"drift": "0.1"}}, "gate: "),
        ({"limits": {"drift": True}}, "gate: "),
        ({"limits": 3}, "gate: "),
        ({"findings": -1}, "findings is -1"),
        ({"findings": 1.5}, "gate: "),
    ],
)
def test_what_guards_nothing_is_refused(mapping: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Gate.from_mapping(mapping)


def test_findings_are_bounded_and_their_number_is_not() -> None:
    traces = [Build(str(place)).end(Reason.HARNESS, None) for place in range(7)]
    row = check("error_rate", *traces, gate=Gate(findings=3))
    assert (len(row.findings), row.found) == (3, 7)
    assert check("error_rate", sound(), gate=Gate(findings=0)).findings == ()


def test_the_documentation_has_the_table_as_it_is() -> None:
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    stated = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    limits = ["none" if row.limit is None else f"{row.limit:g}" for row in CHECKS]
    assert [[cell.strip("|` ") for cell in cells] for cells in stated] == [
        [row.name, row.unit, row.of, limit, row.means] for row, limit in zip(CHECKS, limits, strict=True)
    ]


def test_the_documented_gate_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    gate = Gate.from_mapping(tomllib.loads(text.split("```toml")[1].split("```")[0]))
    assert gate.limits == {"drift": 0.02, "error_rate": None}
