"""Engines: ids in, ids and logprobs out. The embedded engine is ``rollbook.policy.local`` (extra ``local``)."""

from rollbook.policy.check import check_policy
from rollbook.policy.check_report import PolicyCheck, PolicyFinding, PolicyReport, PolicyVerdict
from rollbook.policy.names import (
    EngineKind,
    LocalName,
    PolicyName,
    RemoteName,
    ScriptedName,
    TextName,
    parse_policy_name,
)
from rollbook.policy.protocol import Completion, EngineBusy, Policy, PolicyInfo, TokenIds, check_completion
from rollbook.policy.scripted import ScriptedFailure, ScriptedPolicy, ScriptedReply, load_script

__all__ = [
    "Completion",
    "EngineBusy",
    "EngineKind",
    "LocalName",
    "Policy",
    "PolicyCheck",
    "PolicyFinding",
    "PolicyInfo",
    "PolicyName",
    "PolicyReport",
    "PolicyVerdict",
    "RemoteName",
    "ScriptedFailure",
    "ScriptedName",
    "ScriptedPolicy",
    "ScriptedReply",
    "TextName",
    "TokenIds",
    "check_completion",
    "check_policy",
    "load_script",
    "parse_policy_name",
]
