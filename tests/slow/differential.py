"""Many random conversations of each family against `transformers` (the rules stand in `tests.render.differential`).

    python -m tests.slow.differential [CONVERSATIONS] [SEED]    default 2000 a family; prints a JSON report

Exit code 1 where a family differs, a finding never shows, or a family is left out without a committed reason.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.render.differential import FAMILIES, SKIPPED, Different, Tally, compare, conversations
from tests.render.simulate import Conversation
from tests.render.stock import NAMES

CONVERSATIONS = 2000
BATCH = 200
"""Conversations between two signs of life."""
YARDSTICKS = ("transformers", "tokenizers", "jinja2", "mistral-common")


def examine(name: str, count: int, first_seed: int) -> dict[str, Any]:
    """Compare `count` conversations of one family."""
    tally, fault = Tally(), None
    started = time.perf_counter()
    for part in range(-(-count // BATCH)):
        fault = _batch(name, max(1, min(BATCH, count - tally.conversations)), first_seed + part, tally)
        print(f"{name}: {tally.conversations}/{count}{' DIFFERS' if fault else ''}", file=sys.stderr, flush=True)  # noqa: T201 - progress
        if fault is not None:
            break
    shown = sorted(finding for finding, seen in tally.findings.items() if seen)
    expected = sorted(FAMILIES[name].findings)
    return {
        "conversations": tally.conversations,
        "prompts": tally.moments,
        "by_ids": tally.by_ids,
        "by_text": tally.by_text,
        "findings": {finding.value: tally.findings[finding] for finding in shown},
        "expected": [finding.value for finding in expected],
        "fault": fault,
        "seconds": round(time.perf_counter() - started, 1),
        "held": fault is None and shown == expected and tally.conversations >= count,
    }


def _batch(name: str, count: int, number: int, tally: Tally) -> str | None:
    """What differs, or None."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(talk=conversations(name))
    def run(talk: Conversation) -> None:
        compare(name, talk, tally)

    try:
        run()
    except Different as different:
        return str(different)
    return None


def main(count: int, first_seed: int) -> int:
    """All families, then the report."""
    families = {name: examine(name, count, first_seed) for name in FAMILIES}
    unnamed = sorted(set(NAMES) - FAMILIES.keys() - SKIPPED.keys())
    held = not unnamed and all(family["held"] for family in families.values())
    report = {
        "held": held,
        "seed": first_seed,
        "yardsticks": {name: version(name) for name in YARDSTICKS},
        "families": families,
        "left_out": SKIPPED,
        "left_out_without_reason": unnamed,
    }
    print(json.dumps(report, indent=1))  # noqa: T201 - the report is the output
    return 0 if held else 1


if __name__ == "__main__":
    given_numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*[*given_numbers, *(CONVERSATIONS, 0)[len(given_numbers) :]]))
