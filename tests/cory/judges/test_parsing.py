"""Judges from their specifications."""

import json

import pytest

from cory.judges import rules
from cory.judges.config import JudgeConfig
from cory.judges.parsing import ParsedTerm, is_classifier, make, parse
from cory_env.grading.reward_functions import Cases, ask

HERE = "tests.helpers.judge_functions"
CHAT = [{"role": "user", "content": "2 + 2?"}]
CASES = Cases(
    prompts=["2 + 2?", "3 + 3?", "4 + 4?"],
    answers=["4", "#### 6", ""],
    texts=["2 + 2? 4", "3 + 3? #### 6", "4 + 4? "],
    columns={"gold": ["4", "7", "8"], "level": [1, 2, None]},
)


@pytest.fixture
def made():
    """Judges whose processes end with the test."""
    judges = []

    def build(spec, **options):
        judges.append(make(spec, JudgeConfig(timeout=20, **options), device="cpu"))
        return judges[-1]

    yield build
    for judge in judges:
        judge.close()


@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        ("a:b", [(1, "a:b", ("function", "a:b"))]),
        ("-0.5*a:b", [(-0.5, "a:b", ("function", "a:b"))]),
        (" 1e-3 * a:b  +  .5*owner/name ", [(0.001, "a:b", ("function", "a:b")), (0.5, "owner/name", None)]),
        ("0.5*a:b + 2*regex:####", [(0.5, "a:b", ("function", "a:b")), (2, "regex:####", ("regex", "####"))]),
        ("regex:a+b*c", [(1, "regex:a+b*c", ("regex", "a+b*c"))]),
        ("regex:'x + y' + pocket", [(1, "regex:'x + y'", ("regex", "x + y")), (1, "pocket", None)]),
        ('regex:"', [(1, 'regex:"', ("regex", '"'))]),
        ("+3*math-verify:gold", [(3, "math-verify:gold", ("math-verify", "gold"))]),
        ("./my judge/v2", [(1, "./my judge/v2", None)]),
    ],
)
def test_weights_and_judges_are_read(spec, terms):
    assert parse(spec) == [ParsedTerm(*term) for term in terms]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "cannot be read at ''"),
        ("a:b + ", "cannot be read at ' '"),
        ("a:b +", "cannot be imported"),
        ("1e999*a:b", "has a weight of inf; give a finite number"),
        ("nowhere", "no judge called 'nowhere'; there are .*pocket.*module:function.*regex:PATTERN"),
        ("regex:a + b", r"no judge called 'b'"),
        ("json:nothing", "judge 'json:nothing' cannot be imported .AttributeError.*; write module:function"),
        ("no_such_module:f", "cannot be imported .ModuleNotFoundError"),
        (f"{HERE}:compare.inner", "cannot be imported .AttributeError"),
        (f"{HERE}:PI", "is a float, not a function"),
        ("regex:(", r"judge 'regex:\(' is not a regular expression .*; fix the pattern"),
        ("math-verify:", "names no column; write math-verify:COLUMN"),
    ],
)
def test_a_specification_without_a_judge_is_refused_at_once(made, spec, message):
    with pytest.raises(ValueError, match=message):
        made(spec)


def test_a_module_that_breaks_its_process_is_refused(made, tmp_path, monkeypatch):
    (tmp_path / "breaks_off.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"cannot be imported .its process ended with exit code 7"):
        made("breaks_off:f")


def test_a_module_in_the_working_directory_is_found(made, tmp_path, monkeypatch):
    (tmp_path / "lies_here.py").write_text("def f(texts):\n    return [2.0] * len(texts)\n")
    monkeypatch.chdir(tmp_path)
    assert made("lies_here:f")(["a"]) == [2]


def test_a_parameter_called_completions_selects_the_convention_of_trl(made):
    # gold is 4, 7, 8 and the first completion is 4: 1, 0, 0; one column beside gold: + 100
    assert made(f"{HERE}:compare").judge(CASES) == [101, 100, 100]
    assert made(f"{HERE}:strict").judge(CASES) == [1, 0, 0]
    assert made(f"{HERE}:faulty").judge(CASES) == [8, 13, 7]
    assert made(f"{HERE}:Judges.ones").judge(CASES) == [1, 1, 1]


def test_completions_of_chats_are_messages(made):
    cases = Cases(prompts=[CHAT, CHAT], answers=["four", "4"], texts=["", ""])
    assert made(f"{HERE}:last_word").judge(cases) == [4, 1]
    assert made("regex:^4$").judge(cases) == [0, 1]


def test_a_missing_column_stops_the_run_instead_of_costing_scores(made):
    cases = Cases(prompts=["a"], answers=["b"], texts=["ab"], columns={"level": [1]})
    for spec in (f"{HERE}:compare", f"{HERE}:strict"):
        with pytest.raises(
            ValueError, match="it needs a column 'gold'; the columns beside the prompt are 'level'"
        ):
            made(spec).judge(cases)


def test_a_function_in_this_process_is_called_by_the_same_conventions():
    from tests.helpers import judge_functions

    assert ask(judge_functions.compare, CASES) == [101, 100, 100]
    assert ask(judge_functions.strict, CASES) == [1, 0, 0]
    assert ask(lambda texts: [float(len(text)) for text in texts], CASES) == [8, 13, 7]
    with pytest.raises(ValueError, match="it needs a column 'gold'; the columns beside the prompt are none"):
        ask(judge_functions.strict, Cases(prompts=["a"], answers=["b"], texts=["ab"]))


def test_a_weighted_sum_by_hand(made):
    # strict: 1, 0, 0; digits: 1, 1, 0; lengths of whole texts: 8, 13, 7
    judge = made(rf"-3*{HERE}:strict + 0.5*regex:\d + regex:#$ + 2*{HERE}:faulty")
    assert judge.judge(CASES) == [-3 + 0.5 + 16, 0.5 + 26, 14]
    metrics = judge.metrics()
    assert metrics[f"judge/{HERE}:strict/score"] == pytest.approx(1 / 3)
    assert metrics["judge/regex/score"] == pytest.approx(2 / 3)
    assert metrics["judge/regex#2/score"] == 0
    assert metrics[f"judge/{HERE}:faulty/failures"] == 0
    assert len(metrics) == 12
    assert all(key.count("/") == 2 for key in metrics)


def test_failures_are_reported_once_with_the_response(made):
    judge = made(f"{HERE}:faulty", max_failures=1, failed_score=-1)
    assert judge(["ab", "raise"]) == [2, -1]
    (row,) = judge.failures()
    assert json.loads(json.dumps(row)) == {
        "query": "",
        "response": "raise",
        "judge": f"{HERE}:faulty",
        "failure": "KeyError: 'no such word'",
    }
    assert judge.failures() == []
    assert judge.metrics() == {f"judge/{HERE}:faulty/failures": 1, f"judge/{HERE}:faulty/retries": 1}


@pytest.mark.slow
def test_a_catastrophic_pattern_costs_the_response_it_does_not_end_on():
    judge = make("regex:^(a+)+$", JudgeConfig(timeout=0.7, max_failures=1), device="cpu")
    assert judge(["aaa", "a" * 64 + "b", "b"]) == [1, 0, 0]
    assert judge.failures()[0]["failure"] == "took more than 0.7 s"
    judge.close()


def test_the_error_without_math_verify_names_its_extra(made, tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"needs the package math-verify .*pip install 'cory\[math\]'"):
        made("math-verify:gold")


def test_math_verify_compares_with_the_named_column(made):
    pytest.importorskip("math_verify")
    cases = Cases(
        prompts=["?"] * 3,
        answers=["so it is $\\frac{1}{2}$", "The answer is 0.25", "no idea"],
        texts=[""] * 3,
        columns={"gold": ["0.5", "1/2", "1"], "more": [1, 2, 3]},
    )
    assert made("math-verify:gold").judge(cases) == [1, 0, 0]
    with pytest.raises(
        ValueError, match="needs a column 'solution'; the columns beside the prompt are 'gold', 'more'"
    ):
        made("math-verify:solution").judge(cases)


@pytest.mark.parametrize(
    "gold", [r"\sqrt{2}", "x^2+1", r"\pi", r"2\sqrt{3}", "(1,2)", r"\text{even}", "$7$", "#### 42", "-3"]
)
def test_a_gold_answer_may_be_latex_without_dollars(gold):
    pytest.importorskip("math_verify")
    plain = gold.strip("#$ ")
    completions = [rf"So it is \boxed{{{plain}}}.", r"So it is \boxed{2}.", "no idea"]
    assert rules.equals("gold")(completions, gold=[gold] * 3) == [1, 0, 0]
    assert rules.equals("gold")(["It is 1000."], gold=["1 000"]) == [1]


def test_a_gold_answer_without_mathematics_is_refused():
    pytest.importorskip("math_verify")
    with pytest.raises(ValueError, match="gold answer '' in column 'gold' holds no number or formula"):
        rules.equals("gold")(["2"], gold=[""])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"timeout": 0}, "judge.timeout is 0"),
        ({"memory_mb": -1}, "judge.memory_mb is -1"),
        ({"max_failures": 1.5}, "judge.max_failures is 1.5"),
        ({"max_failures": float("nan")}, "judge.max_failures is nan"),
        ({"failed_score": float("nan")}, "judge.failed_score is nan"),
    ],
)
def test_invalid_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        JudgeConfig(**setting)


def test_a_single_classifier_without_weight_is_one():
    assert is_classifier("pocket")
    assert not is_classifier("2*pocket")
    assert not is_classifier("a:b")
    assert not is_classifier("pocket + owner/name")


def test_classifiers_and_functions_add_up(made):
    text = ["a wonderful, moving film"]
    score = made("pocket")(text)[0]
    assert made(f"0.5*pocket + 2*{HERE}:faulty")(text) == [pytest.approx(0.5 * score + 2 * 24)]
    negative = made("pocket", label="0", output="probability")(text)[0]
    positive = made("pocket", label="positive", output="probability")(text)[0]
    assert negative + positive == pytest.approx(1)
