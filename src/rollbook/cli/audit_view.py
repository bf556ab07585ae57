"""An audit's report as a table, and the findings behind what broke."""

from __future__ import annotations

from rich.console import Console

from rollbook.audit import Check, Report, Unit
from rollbook.cli.screen import MISSING, counted, share, show_table, visible

__all__ = ["show_audit"]

FINDINGS = 5
"""Findings shown for each check that broke; ``--json`` gives more."""

_VERDICTS = {
    0: "passed",
    1: "failed: a limit broke",
    2: "cannot be judged",
}


def show_audit(out: Console, report: Report) -> None:
    """One line per check, then what each broken or unjudged one says."""
    rows = [
        (check.status.replace("_", " "), check.name, _value(check, check.value), _value(check, check.limit),
         f"{check.n} {check.of}")
        for check in report.checks
    ]  # fmt: skip
    show_table(
        out,
        f"Audit of {counted(report.rollouts, 'rollout')}",
        ("", "check", "value", "limit", "of"),
        rows,
        form="llrrl",
    )
    for check in report.broke:
        _explain(out, check)
    silent: dict[str, list[str]] = {}
    for check in report.not_judged:
        silent.setdefault(check.says, []).append(check.name)
    for says, names in silent.items():
        out.print(f"{', '.join(names)}: {visible(says)}")
    if report["no_vote"].value == 1.0:
        out.print("No rollout has a vote: there is nothing to train, and nothing to export.")
    out.print(f"The audit {_VERDICTS[report.exit_code]}.\n")


def _value(check: Check, value: float | None) -> str:
    if check.unit is Unit.SHARE:
        return share(value)
    return MISSING if value is None else f"{value:g}"


def _explain(out: Console, check: Check) -> None:
    out.print(f"{check.name}: {visible(check.says)}")
    for finding in check.findings[:FINDINGS]:
        place = "".join(
            f", {name} {index}"
            for name, index in (("node", finding.node), ("token", finding.token))
            if index is not None
        )
        out.print(f"  {visible(finding.rollout)}{place}: {visible(finding.text)}")
    if check.found > FINDINGS:
        out.print(f"  ... and {check.found - FINDINGS} more")
