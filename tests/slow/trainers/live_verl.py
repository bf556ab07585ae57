"""verl: `AgentLoopOutput`, its workers' own padding and queue fields, `DataProto`, and the losses over them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, AgentLoopWorker, DictConfigWrap
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig
from verl.workers.rollout.replica import TokenOutput

from rollbook.export.doors import verl, verl_batch
from rollbook.rollout import Limits, RolloutSettings
from rollbook.run.doors.verl import agent_loop
from rollbook.trace import Reason, RolloutFailure, Task
from rollbook.trace.sample import Sample
from tests.render.families import template, tokenizer_json
from tests.rollout.made import SMOLLM, Talk, ids_of
from tests.slow.trainers.toy import LINEAR, Table, made, token_logprobs

PROMPT, RESPONSE = 16, 12


def outputs(samples: list[Sample]) -> list[AgentLoopOutput]:
    return [AgentLoopOutput(**each) for each in verl.records(samples)]


def batch(samples: list[Sample], **options: Any) -> DataProto:
    made_batch = verl_batch.records(samples, **options)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in made_batch["tensors"].items()}
    return DataProto.from_dict(tensors, non_tensors=made_batch["non_tensors"])


@pytest.fixture
def worker() -> AgentLoopWorker:
    """verl's worker without its servers: what pads and stacks outputs."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0}, unk_token="<pad>")), pad_token="<pad>"
    )
    made_worker = AgentLoopWorker.__new__(AgentLoopWorker)
    made_worker.rollout_config = SimpleNamespace(prompt_length=PROMPT, response_length=RESPONSE)
    made_worker.tokenizer, made_worker.processor = tokenizer, None
    made_worker.distillation_enabled, made_worker.reward_loop_worker_handles = False, None
    made_worker.mm_processor_kwargs = {}
    return made_worker


@pytest.mark.parametrize("name", [*LINEAR, "three_branches", "lost_end"])
def test_an_output_is_the_sample(name: str) -> None:
    samples = made(name)
    for sample, output in zip(samples, outputs(samples), strict=True):
        again = AgentLoopOutput.model_validate(output.model_dump())
        assert again == output
        fields = output.as_dict()
        ids = torch.cat([fields["prompts"], fields["responses"]])
        assert ids.tolist() == sample.token_ids.tolist()
        start = sample.prompt_len
        assert fields["response_mask"].tolist() == sample.loss_mask[start:].astype(int).tolist()
        trains = sample.loss_mask[start:]
        assert np.array_equal(fields["rollout_log_probs"].numpy()[trains], sample.logprobs[start:][trains])
        assert not fields["rollout_log_probs"].numpy()[~trains].any()
        assert fields["rm_scores"].tolist() == [0.0] * (len(sample) - start - 1) + [sample.reward]
        assert fields["extra_fields"]["max_global_steps"] == sample.max_version


def test_routed_experts_stand_at_the_pass_over_each_token() -> None:
    (sample,) = made("one_turn")
    record = verl.record(sample) | {
        "routed_experts": np.arange(4 * (len(sample) - 1)).reshape(-1, 2, 2).astype(np.int16)
    }
    aligned = AgentLoopOutput(**record).as_dict()["routed_experts"]
    assert len(aligned) == len(sample)
    assert aligned[:-1].tolist() == record["routed_experts"].tolist()


def test_verl_pads_outputs_into_our_batch(worker: AgentLoopWorker) -> None:
    """Its own padding of our outputs is our batch, tensor for tensor."""
    samples = made(*LINEAR)

    async def padded() -> DataProto:
        inputs = [
            await worker._agent_loop_postprocess(each, False, raw_prompt=[{"role": "user", "content": "?"}])
            for each in outputs(samples)
        ]
        return worker._postprocess(inputs)

    theirs = asyncio.run(padded())
    ours = batch(samples, prompt_length=PROMPT, response_length=RESPONSE)
    for name in theirs.batch.keys():  # noqa: SIM118 (likewise)
        assert torch.equal(theirs.batch[name], ours.batch[name].to(theirs.batch[name].dtype)), name
    assert theirs.non_tensor_batch["__num_turns__"].tolist() == ours.non_tensor_batch["__num_turns__"].tolist()
    assert theirs.non_tensor_batch["rollout_id"].tolist() == ours.non_tensor_batch["rollout_id"].tolist()


def test_branches_of_one_attempt_go_into_verls_queue_together(
    worker: AgentLoopWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.trainer.ppo.v1 import agent_loop_tq  # noqa: PLC0415 (a module that starts Ray's machinery)

    kept: dict[str, Any] = {}

    async def put(**given: Any) -> None:
        kept.update(given)

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", put)
    samples = made("three_branches")
    queue = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    queued = queue._agent_loop_postprocess
    asyncio.run(queued(worker, outputs(samples), False, uid="u", session_id=1, global_steps=3))
    assert kept["keys"] == ["u_1_0", "u_1_1", "u_1_2"]
    assert [tag["seq_len"] for tag in kept["tags"]] == [len(each) for each in samples]
    assert [tag["min_global_steps"] for tag in kept["tags"]] == [3, 3, 3]
    for index, sample in enumerate(samples):
        row = kept["fields"][index]
        assert row["input_ids"].tolist() == sample.token_ids.tolist()
        assert row["loss_mask"].tolist() == sample.loss_mask[sample.prompt_len :].astype(int).tolist()
        assert float(row["rm_scores"].sum()) == sample.reward


def test_a_batch_survives_verls_own_hands() -> None:
    samples = made(*LINEAR, "three_branches")
    whole = batch(samples)
    again = DataProto.concat(whole.chunk(len(samples)))
    for name in whole.batch.keys():  # noqa: SIM118 (a TensorDict iterates over its rows)
        assert torch.equal(again.batch[name], whole.batch[name]), name
    picked = whole.select_idxs(np.array([2, 0]))
    assert picked.non_tensor_batch["rollout_id"].tolist() == [samples[2].rollout, samples[0].rollout]


def new_logprobs(model: Table, data: DataProto) -> torch.Tensor:
    """Of the response tokens, after verl's shift: columns of the response, one before each."""
    answers = data.batch["responses"].shape[1]
    return token_logprobs(model, data.batch["input_ids"])[:, -answers:]


def loss_of(data: DataProto, logprobs: torch.Tensor, mode: str, weights: torch.Tensor | None = None) -> torch.Tensor:
    config = FSDPActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, ppo_mini_batch_size=1)
    loss, _ = core_algos.compute_policy_loss_vanilla(
        old_log_prob=data.batch["rollout_log_probs"],
        log_prob=logprobs,
        advantages=data.batch["advantages"],
        response_mask=data.batch["response_mask"],
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=weights,
    )
    return loss


def test_recomputed_logprobs_are_the_behaviours() -> None:
    data = batch(made(*LINEAR))
    mask = data.batch["response_mask"].bool()
    found = new_logprobs(Table(), data)[mask] - data.batch["rollout_log_probs"][mask]
    assert found.abs().max() < 1e-5


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_masked_tokens_have_exactly_no_gradient(mode: str) -> None:
    data = batch(made(*LINEAR, "three_branches"))
    logprobs = new_logprobs(Table(), data).detach().requires_grad_()
    loss_of(data, logprobs, mode).backward()
    mask, advantages = data.batch["response_mask"].bool(), data.batch["advantages"]
    assert (logprobs.grad[~mask] == 0).all()
    assert ((logprobs.grad != 0) == (mask & (advantages != 0))).all()


def test_grpo_over_the_voters_is_our_advantage() -> None:
    """A lost member is in no row: verl's mean is over those that vote, as ours is."""
    data = batch(made(*LINEAR, "lost_host", "unscored"))
    assert len(data) == len(LINEAR)
    theirs, _ = core_algos.compute_grpo_outcome_advantage(
        token_level_rewards=data.batch["token_level_rewards"],
        response_mask=data.batch["response_mask"],
        index=data.non_tensor_batch["uid"],
        norm_adv_by_std_in_grpo=False,
    )
    assert torch.allclose(theirs, data.batch["advantages"], atol=1e-6)


def test_an_attempt_with_branches_weighs_as_much_as_one_without() -> None:
    """By row, with the weights of the batch: the loss is the mean over attempts, each the mean over its own tokens."""
    samples = made("one_turn", "two_turns", "three_branches")
    data = batch(samples)
    logprobs = new_logprobs(Table(), data).detach().requires_grad_()
    weights = data.batch["rollout_weight"][:, None].expand(logprobs.shape)
    loss_of(data, logprobs, "seq-mean-token-mean", weights).backward()
    pull: dict[str, float] = {}
    for sample, row in zip(samples, logprobs.grad, strict=True):
        pull[sample.rollout] = pull.get(sample.rollout, 0.0) + float(row.abs().sum()) / abs(sample.advantage or 1.0)
    assert max(pull.values()) - min(pull.values()) < 1e-6


class Servers:
    """verl's `LLMServerClient` with its real reply class, and words put in its mouth."""

    def __init__(self, *said: str | None) -> None:
        self.said, self.asked = list(said), []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.asked.append((prompt_ids, sampling_params))
        text = self.said.pop(0)
        if text is None:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, "gone")
        ids = ids_of(text)
        steps = {"min_global_steps": 2, "max_global_steps": 2}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=steps)


def loop_over(servers: Servers) -> AgentLoopBase:
    """An instance of our agent loop, made as verl makes one."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(tokenizer_json(marked=False).decode()))
    tokenizer.chat_template = template("smollm2")
    settings = RolloutSettings(limits=Limits(max_generation=16))
    kind = agent_loop(
        lambda: Talk("Again."),
        lambda row: Task(id=row["index"], prompt=row["raw_prompt"][0]["content"]),
        renderer=SMOLLM.renderer,
        settings=settings,
    )
    rollout = {"max_model_len": 512, "prompt_length": 256, "response_length": 256}
    return kind(
        trainer_config=DictConfigWrap(OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})),
        server_manager=servers,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(OmegaConf.create({})),
        tools=None,
    )


ROW = {"raw_prompt": [{"role": "user", "content": "What is two?"}], "index": "t3", "uid": "group-7"}
ASKED = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


def run_loop(*said: str | None) -> tuple[Any, Servers]:
    servers = Servers(*said)

    async def run() -> Any:
        return await loop_over(servers).run(dict(ASKED), **ROW)

    return asyncio.run(run()), servers


def test_our_agent_loop_runs_a_rollout_over_verls_servers() -> None:
    output, servers = run_loop("4", "5")
    assert isinstance(output, AgentLoopOutput)
    assert len(servers.asked) == 2
    assert servers.asked[1][0][: len(servers.asked[0][0])] == servers.asked[0][0]
    assert servers.asked[0][1]["max_tokens"] == 16
    assert output.prompt_ids == servers.asked[0][0]
    assert sum(output.response_mask) == len(ids_of("4")) + len(ids_of("5"))
    assert output.num_turns == 2
    assert output.reward_score == 1.0
    assert output.extra_fields["group_id"] == "group-7"
    assert output.extra_fields["max_global_steps"] == 2
    assert output.as_dict()["rm_scores"].sum() == 1.0


def test_an_attempt_without_a_vote_leaves_no_row_in_verls_queue(worker: AgentLoopWorker) -> None:
    from verl.trainer.ppo.v1 import agent_loop_tq  # noqa: PLC0415 (a module that starts Ray's machinery)

    output, _ = run_loop(None)
    assert output == []
    queue = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    assert asyncio.run(queue._agent_loop_postprocess(worker, output, False, uid="u", session_id=0)) is None
