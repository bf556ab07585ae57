"""Scorers: small values that `Environment.score` awaits, and that go together.

Each is an async function of one trace (`Scorer`), made by a function that says what it compares.
"""

from rollbook.rewards.scorers.exact import exact
from rollbook.rewards.scorers.judge import Judge
from rollbook.rewards.scorers.judgement import JudgeError, JudgeFailed, Judgement
from rollbook.rewards.scorers.math_equal import math_equal
from rollbook.rewards.scorers.scorer import Answer, Scorer, ScoringFailed, Target, answer_text, target_text
from rollbook.rewards.scorers.turns import EachTurn, each_turn
from rollbook.rewards.scorers.weighted import weighted

__all__ = [
    "Answer",
    "EachTurn",
    "Judge",
    "JudgeError",
    "JudgeFailed",
    "Judgement",
    "Scorer",
    "ScoringFailed",
    "Target",
    "answer_text",
    "each_turn",
    "exact",
    "math_equal",
    "target_text",
    "weighted",
]
