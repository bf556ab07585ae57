"""Mutants of what can be set of a template: that it reaches the renderer, the record, a resume and the audit."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

POLICIES, HARMONY, SETTINGS = "run/test_policies.py", "run/test_harmony.py", "render/test_settings.py"
AUDIT, RUN, OPTIONS = "cli/test_audit.py", "cli/test_run.py", "cli/test_template_options.py"
REACH = f"{POLICIES}::test_template_day_and_variables_reach_the_renderer_and_the_record"
REFUSED = f"{HARMONY}::test_what_gpt_oss_cannot_be_told_is_refused"
AGAIN = f"{AUDIT}::test_a_run_of_a_template_that_was_set_is_audited_with_the_same"


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of any room; `test` is below ``tests``."""
    return Mutant(name, f"{file}.py", snippet, replacement, f"tests/{test}")


MUTANTS = [
    mutant("the day is not told", "run/policies", "now=now,", "now=None,", REACH),
    mutant("variables are dropped", "run/policies", "variables=variables or {},", "variables={},", REACH),
    mutant(
        "the model's own template stays",
        "run/policies",
        "template_of(files, template)",
        "template_of(files, None)",
        REACH,
    ),
    mutant(
        "a variable that nothing reads is taken",
        "run/policies",
        "    if variables:\n",
        "    if False:\n",
        f"{POLICIES}::test_a_variable_that_the_template_never_reads_is_refused",
    ),
    mutant(
        "stop tokens replace the model's",
        "run/templates",
        "(*known, *stops)",
        "stops or known",
        "run/test_templates.py::test_stop_tokens_are_added_to_the_models_own",
    ),
    mutant(
        "a special token of a template alone is a variable like any other",
        "run/templates",
        "for name in _SPECIAL if name in given}",
        "for name in ()}",
        "run/test_templates.py::test_special_tokens_of_a_template_alone_are_given",
    ),
    mutant(
        "any text is a day",
        "run/templates",
        'if not isinstance(cast("object", date), Date | None):',
        "if False:",
        "run/test_templates.py::test_a_path_may_be_text_and_a_day_must_be_one",
    ),
    mutant(
        "gpt-oss is checked by a template",
        "run/templates",
        "if is_harmony(files.tokenizer_json):",
        "if False:",
        "run/test_templates.py::test_gpt_oss_has_no_template_to_check",
    ),
    mutant("a run drops its day", "run/policies", "date=config.template_date,", "date=None,", REACH),
    mutant(
        "a run drops its variables", "run/policies", "variables=config.template_variables,", "variables=None,", REACH
    ),
    mutant(
        "a run loads the policy alone",
        "run/live_run",
        "policy_of, config, way",
        "policy_of, RunConfig(environment='x', policy=config.policy), way",
        f"{POLICIES}::test_a_run_uses_the_template_that_it_was_asked_for",
    ),
    mutant(
        "only one form of tokenizer lies beside a script",
        "run/model_files",
        "if has_tokenizer(path.parent)",
        'if (path.parent / "tokenizer.json").exists()',
        f"{POLICIES}::test_a_script_speaks_with_any_form_of_tokenizer",
    ),
    mutant(
        "a path that is there is no path",
        "run/policies",
        " or path.exists()",
        "",
        f"{POLICIES}::test_a_renderer_by_path",
    ),
    mutant(
        "gpt-oss takes a template", "run/policies", "        if template is not None:\n", "        if False:\n", REFUSED
    ),
    mutant("any effort is one", "run/harmony", " and value in list(Effort)", "", REFUSED),
    mutant(
        "gpt-oss has no day",
        "run/harmony",
        "start=day",
        "start=None",
        f"{HARMONY}::test_day_effort_and_identity_are_told",
    ),
    mutant(
        "a variable is used otherwise than recorded",
        "render/chat",
        "plain_variables(config.variables)",
        "config.variables",
        f"{SETTINGS}::test_a_renderer_says_what_was_set_and_uses_just_that",
    ),
    mutant(
        "what no record can hold is set",
        "render/settings",
        ", allow_nan=False",
        "",
        f"{SETTINGS}::test_what_no_record_can_hold_is_refused",
    ),
    mutant(
        "a variable is dropped in silence",
        "render/template",
        "if taken := sorted(self.variables.keys() & (_OWN | self.special_tokens.keys())):",
        "if taken := []:",
        "render/test_template.py::test_a_variable_that_would_be_dropped_is_refused",
    ),
    mutant(
        "settings are not recorded",
        "rollout/loaded",
        "            template_settings=dict(renderer.settings),\n",
        "",
        "rollout/test_loaded.py::test_what_was_set_of_the_template_is_recorded",
    ),
    mutant(
        "an old run set variables",
        "run/resume",
        '        "template_variables": {},\n',
        "",
        f"{RUN}::test_a_run_that_was_stored_before_a_template_could_be_set_set_nothing",
    ),
    mutant(
        "a variable set twice counts once",
        "cli/template_options",
        "if key in found:",
        "if False:",
        f"{OPTIONS}::test_what_is_no_pair_is_refused",
    ),
    mutant(
        "prompts of other settings are judged",
        "audit/origin",
        'return "other_settings"',
        "pass",
        "audit/test_origin.py::test_why_tokens_are_foreign",
    ),
    mutant("the audit sets no day", "cli/audit", "date=used.date,", "date=None,", AGAIN),
    mutant("the audit sets no variables", "cli/audit", "variables=used.variables)", "variables=None)", AGAIN),
    mutant(
        "the audit uses the model's template",
        "cli/audit",
        "template=template or used.template,",
        "template=template,",
        AGAIN,
    ),
    mutant(
        "the audit takes no template",
        "cli/audit",
        "template=template or used.template,",
        "template=used.template,",
        AGAIN,
    ),
    mutant(
        "another template is not told",
        "cli/audit",
        'if record.template_hash not in ("", found.template_hash):',
        "if False:",
        f"{AUDIT}::test_another_template_than_the_runs_judges_tokens_alone",
    ),
    mutant(
        "other settings are not told",
        "cli/audit",
        "if record.template_settings != found.settings:",
        "if False:",
        f"{AUDIT}::test_settings_that_cannot_be_given_again_are_told",
    ),
    mutant(
        "anybody's configuration is a run's",
        "cli/audit",
        "head.config if head.run else {}",
        "head.config",
        f"{AUDIT}::test_what_a_rollout_outside_of_a_run_calls_a_template_is_its_own",
    ),
]
