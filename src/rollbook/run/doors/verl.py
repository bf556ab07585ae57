"""Our rollouts inside of verl: an agent loop class, made on demand over verl's own `AgentLoopBase`.

    # loops.py
    CalculatorLoop = agent_loop(Calculator, task_of)

    # agent.yaml, given to verl as actor_rollout_ref.rollout.agent.agent_loop_config_path
    - name: calculator
      _target_: loops.CalculatorLoop

verl makes an instance for each rollout and hands it one row of its data set; `task_of` makes the task of it. Tokens are
sampled by verl's own engines (`VerlPolicy`), with the temperature and truncation of verl's configuration; what comes
back is one `AgentLoopOutput` (`rollbook.export.doors.verl`), or a list where the attempt branched, which verl's V1
trainer takes. An attempt without a vote gives an empty list: V1 stores no row for it, so it is in no mean. The reward
is ours; verl's own reward loop is not asked.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rollbook.errors import optional
from rollbook.export.doors.admission import admitted
from rollbook.export.doors.verl import record
from rollbook.render.protocol import Renderer
from rollbook.rollout import EnvFactory, LoadedPolicy, RolloutSettings
from rollbook.rollout.rollout import DEFAULT_SETTINGS
from rollbook.run.doors.attempt import make_attempt
from rollbook.run.doors.verl_policy import VerlPolicy, sampling_of
from rollbook.run.policies import load_renderer
from rollbook.trace import Sink, Task

__all__ = ["agent_loop"]

_THEIRS = "verl.experimental.agent_loop.agent_loop"


def agent_loop(
    make_env: EnvFactory,
    task_of: Callable[[Mapping[str, Any]], Task],
    *,
    renderer: Renderer | None = None,
    settings: RolloutSettings = DEFAULT_SETTINGS,
    sink: Sink | None = None,
    allow_unfit_logprobs: bool = False,
) -> type[Any]:
    """A subclass of verl's `AgentLoopBase` whose `run` is one of our rollouts; raises `UsageError` without verl.

    `task_of`: makes the task of a row's fields. `renderer`: of the model that trains; None: of the folder that verl's
    tokenizer was loaded from. `settings`: everything but what verl's configuration says of sampling. `sink`: where
    traces are kept; None: nowhere. `allow_unfit_logprobs`: True where verl samples from a part of the vocabulary and
    corrects for it.
    """
    theirs: Any = optional(_THEIRS, "verl", says=lambda error: "verl is not installed here: run pip install verl")
    kept: list[Renderer] = [] if renderer is None else [renderer]

    class RollbookAgentLoop(theirs.AgentLoopBase):
        """One of our rollouts, as verl asks for it."""

        async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
            if not kept:
                kept.append(load_renderer(Path(self.tokenizer.name_or_path)))
            policy = LoadedPolicy(
                VerlPolicy(
                    self.server_manager, kept[0].info.stop_ids, context_length=self.rollout_config.max_model_len
                ),
                kept[0],
            )
            asked = dataclasses.replace(settings, sampling=sampling_of(sampling_params, settings.sampling))
            attempt = await make_attempt(make_env, task_of(fields), policy, asked, secrets.token_hex(8), sink=sink)
            if not attempt.samples:
                return []
            group = str(fields.get("uid", attempt.trace.head.group))
            taken = admitted(attempt.samples, allow_unfit_logprobs=allow_unfit_logprobs)
            made = [theirs.AgentLoopOutput(**record(dataclasses.replace(each, group=group))) for each in taken]
            return made[0] if len(made) == 1 else made

    return RollbookAgentLoop
