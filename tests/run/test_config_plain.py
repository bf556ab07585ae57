"""A configuration as plain data equals what comes back from `run.json`, so that the same can be asked for again."""

from __future__ import annotations

import json

from rollbook.rollout import Limits
from rollbook.run import RunConfig, differences
from rollbook.trace import Drop, EndingRules, Reason, Retry, Sampling


def test_plain_is_what_json_gives_back() -> None:
    config = RunConfig(
        environment="calculator",
        options={"names": ("a", "half \ud835 pair")},
        limits=Limits(deadline=None),
        sampling=Sampling(stop=("\n",), stop_token_ids=(2,)),
        rules=EndingRules({Reason.HARNESS: Retry(1), Reason.DEADLINE: Drop()}),
    )
    stored = json.loads(json.dumps(config.plain()))
    assert stored == config.plain()
    assert differences(stored, config.plain()) == []
