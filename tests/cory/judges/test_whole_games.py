"""Judges that read whole games: functions in workers, models by a template, and sums of them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cory.judges import weighted_sum
from cory.judges.config import JudgeConfig
from cory.judges.game_template import GameTemplate
from cory.judges.parsing import make
from cory.judges.weighted_sum import Term, WeightedSum
from cory_env.grading.reward_functions import Cases, Signature, ask, reads_games
from tests.helpers import judge_functions

HERE = "tests.helpers.judge_functions"
SEATS = ("pioneer_0", "observer_1")
GAMES = [{"pioneer_0": "abcd", "observer_1": "a"}, {"pioneer_0": "b", "observer_1": "b"}]
CASES = Cases(
    prompts=["q", [{"role": "user", "content": "r"}]] * 2,
    answers=["abcd", "b", "a", "b"],
    texts=["qabcd", "rb", "qa", "rb"],
    seats=[seat for seat in SEATS for _ in GAMES],
    games=GAMES * 2,
)
LONGER = [30, 0, -3, 0]
"""10 * (4 - 1) for the pioneer of the first game, 1 - 4 for its observer, and equal lengths in the second."""
ALONE = Cases(prompts=["q"], answers=["abcd"], texts=["qabcd"])


@pytest.fixture
def made():
    """Judges whose processes end with the test."""
    judges = []

    def build(spec, **options):
        config = JudgeConfig(timeout=20, **options)
        judges.append(make(spec, config, device="cpu"))
        return judges[-1]

    yield build
    for judge in judges:
        judge.close()


@pytest.mark.parametrize("place", [HERE, str(Path(judge_functions.__file__))])
def test_a_function_of_a_module_and_of_a_file_gets_seats_and_games_in_a_worker(made, place):
    judge = made(f"{place}:longer")
    assert judge.reads_games
    assert judge.judge(CASES) == LONGER
    assert judge.judge(ALONE) == [40]  # the dict holds the one response, of a pioneer


def test_a_hybrid_sum_adds_what_reads_games_to_what_reads_texts(made):
    judge = made(f"0.5*{HERE}:longer + 2*regex:b$ + {HERE}:agree")
    assert judge.judge(CASES) == [15, 2 + 1, -1.5, 2 + 1]
    assert judge.team_only == "there is nobody to agree with"
    assert not made("regex:b").reads_games
    assert made("regex:b").team_only == ""


def test_a_batch_that_fails_is_repeated_response_by_response_with_its_game(made):
    judge = made(f"{HERE}:singly", failed_score=-9, max_failures=1)
    assert judge.judge(CASES) == [5, 2, 5, 2]
    assert judge.terms[0].judge.retried == 1


def test_a_column_of_the_data_that_has_the_name_is_refused_only_where_it_is_asked_for():
    cases = Cases(prompts=["q"], answers=["a"], texts=["qa"], columns={"responses": [3]})
    with pytest.raises(ValueError, match=r"names 'responses', .* a column of that name; rename the column"):
        ask(judge_functions.agree, cases)
    assert ask(lambda completions, **columns: sorted(columns), cases) == ["prompts", "responses"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda responses: 0, {"responses"}),
        (lambda responses, **columns: 0, {"responses"}),
        (lambda seat, responses: 0, {"seat", "responses"}),
        (lambda completions, seat=None: 0, {"seat"}),
        (lambda completions, **columns: 0, set()),
        (lambda texts: 0, set()),
        (lambda texts, seat=1: 0, set()),
    ],
)
def test_a_function_reads_games_by_the_names_it_is_called_with(function, names):
    import inspect

    assert Signature.of(inspect.signature(function).parameters.values()).of_games == names
    assert reads_games(function) == bool(names)


def test_columns_alone_get_no_game():
    assert ask(lambda completions, **columns: sorted(columns), CASES) == ["prompts"]


def lengths(texts):
    return [float(len(text)) for text in texts]


def test_a_template_makes_the_text_of_the_whole_game():
    texts = []
    template = "{seat}: {query} {{{response_0}|{response_1}}} {response}"
    judge = GameTemplate(lambda given: texts.extend(given) or lengths(given), template)
    scores = judge.judge(CASES)
    assert texts == [
        "pioneer_0: q {abcd|a} abcd",
        "pioneer_0: user: r {b|b} b",
        "observer_1: q {abcd|a} a",
        "observer_1: user: r {b|b} b",
    ]
    assert scores == lengths(texts)
    assert judge.team_only == "judge.template holds {response_1}"


def test_a_template_of_one_response_scores_it_standalone_too():
    judge = GameTemplate(lengths, "{query}{response}")
    assert (judge.team_only, judge.judge(ALONE)) == ("", [5])
    assert GameTemplate(lengths, "{response_0}").team_only == ""


def test_the_pocket_judge_reads_games_by_its_template(made):
    judge = made("pocket", template="{response_0} {response_1}")
    plain = made("pocket")(["abcd a", "b b"])
    assert judge.judge(CASES) == pytest.approx(plain * 2)
    assert plain[0] != plain[1]


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{query}", "holds no response; it may hold {query}, {response}"),
        ("{response} {gold}", "holds {gold}; it may hold {query}, {response}"),
        ("{response_x}", "holds {response_x}; it may hold"),
        ("{response_0", "template of the judge cannot be read"),
    ],
)
def test_a_template_with_other_places_is_refused(template, what):
    with pytest.raises(ValueError, match=what):
        GameTemplate(lengths, template)


def test_a_template_for_more_seats_than_the_game_has_is_refused():
    with pytest.raises(
        ValueError, match=r"holds {response_2}, and the game has the seats pioneer_0, observer_1"
    ):
        GameTemplate(lengths, "{response_2}").judge(CASES)


def test_a_template_without_a_model_to_read_it_is_refused(made):
    with pytest.raises(ValueError, match=r"judge.template is for classifiers, and 'regex:a' names none"):
        made("regex:a", template="{response}")


def test_a_task_that_scores_response_by_response_refuses_a_judge_of_games():
    task = SimpleNamespace(judge=WeightedSum([Term("agree", 1.0, judge_functions.agree)]))
    with pytest.raises(ValueError, match=r"the judge reads whole games, and .* scores response by response"):
        weighted_sum.check(task, SEATS)
    weighted_sum.check(task, SEATS[:1])
