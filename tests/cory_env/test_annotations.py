"""Texts that a task adds behind responses: who reads them, in every view of the game."""

import numpy as np
import pytest

import cory_env
from cory_env.game import Game
from cory_env.tasks.arithmetic import Task
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer
from cory_env.types import Query
from cory_env.vector import VectorGame


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(digits=1, terms=2, worked=True, verdict=True)


def ids_of(task: Task, text: str) -> list[int]:
    return [*task.tokenizer.encode(text), min(task.tokenizer.eos)]


def query_of(task: Task) -> Query:
    return next(query for query in task.queries("train") if query.text == "3 + 4")


PROMPTS = {
    "right": "Question: 3 + 4\nReference:#### 7\nright\nAnswer:",
    "wrong": "Question: 3 + 4\nReference:#### 8\nwrong\nAnswer:",
}


@pytest.mark.parametrize(("answer", "verdict"), [("#### 7", "right"), ("#### 8", "wrong")])
def test_the_observer_reads_the_verdict_in_the_batched_game_and_in_the_env(task, answer, verdict):
    ids, query = ids_of(task, answer), query_of(task)
    game = VectorGame(task, seats=2, max_response=8)
    game.reset([query])
    game.respond("pioneer_0", np.array([ids]), np.array([len(ids)]))
    prompt_BP, length_B = game.prompts("observer_1")
    read = prompt_BP[0, : length_B[0]].tolist()
    assert task.tokenizer.decode(read) == PROMPTS[verdict]
    env = cory_env.env(task, max_response=8)
    env.reset(options={"query": query, "caps": (8, 8)})
    for token in ids:
        env.step(token)
    observation = env.observe("observer_1")
    tokens = observation["tokens"] if isinstance(observation, dict) else observation
    assert list(tokens[: len(read)]) == read
    assert env.observation_space("observer_1").contains(observation)
    assert game.responses("pioneer_0")[0].text == answer  # what is scored has no verdict


def test_a_response_cut_at_its_cap_has_its_verdict_too(task):
    ids = task.tokenizer.encode("#### 7")
    game = VectorGame(task, seats=2, max_response=len(ids))
    game.reset([query_of(task)])
    game.respond("pioneer_0", np.array([ids]), np.array([len(ids)]))
    prompt_BP, length_B = game.prompts("observer_1")
    assert task.tokenizer.decode(prompt_BP[0, : length_B[0]].tolist()) == PROMPTS["right"]


def test_the_longest_prompt_counts_the_verdict(task):
    plain = Task(digits=1, terms=2, worked=True)
    longest = [
        VectorGame(one, seats=2, max_response=8).views[1].max_prompt(one.max_query, 8)
        for one in (plain, task)
    ]
    assert longest[1] - longest[0] == len("\nright")


def test_a_saved_game_goes_on_with_its_annotations():
    def annotate(query, ids, seat):
        return (5, 6)

    from tests.cory_env.test_game import EOS, OBSERVER, PIONEER

    views = (PIONEER, OBSERVER)
    game = Game(Query("ab", (1, 2)), views=views, eos=EOS, max_response=3, annotate=annotate)
    game.respond([4, min(EOS)])
    twin = Game.from_state(game.get_state(), views=views, eos=EOS, annotate=annotate)
    assert game.prompt("observer_1") == twin.prompt("observer_1") == (7, 1, 2, 4, 5, 6)


def test_no_end_of_an_annotation_enters_a_prompt_in_either_game():
    class Ending(CharTokenizer):
        def encode(self, text):
            return [min(self.eos) if c == "$" else super(Ending, self).encode(c)[0] for c in text]

    class Ended(Echo):
        max_annotation = 2

        def annotations(self, queries, responses):
            return ["x$"] * len(responses)

        def template(self, seat):
            return "{query}" if seat == "pioneer_0" else "{query}{response_0} "

    task = Ended(Ending(), length=1)
    (query,) = task.queries("test")[:1]
    game = VectorGame(task, max_response=2)
    game.reset([query])
    game.respond("pioneer_0", np.array([[1, 2]]), np.array([2]))
    prompt_BP, length_B = game.prompts("observer_1")
    env = cory_env.raw_env(task, max_response=2)
    env.reset(options={"query": query, "caps": (2, 2)})
    env.step(1)
    env.step(2)
    want = (*query.ids, 1, 2, *task.tokenizer.encode("x "))
    assert tuple(prompt_BP[0, : length_B[0]]) == env.game.prompt("observer_1") == want


def test_a_text_longer_than_promised_is_refused():
    class Longer(Task):
        def annotations(self, queries, responses):
            return ["\nright, and more"] * len(responses)

    task = Longer(digits=1, terms=2, worked=True, verdict=True)
    ids = ids_of(task, "#### 7")
    game = VectorGame(task, seats=2, max_response=8)
    game.reset([query_of(task)])
    with pytest.raises(ValueError, match="of at most max_annotation, 6"):
        game.respond("pioneer_0", np.array([ids]), np.array([len(ids)]))


def test_a_verdict_needs_worked_problems():
    with pytest.raises(ValueError, match="verdict needs worked problems"):
        Task(verdict=True)


@pytest.mark.parametrize("make", [VectorGame, cory_env.env])
def test_annotations_without_the_most_tokens_of_one_are_refused(make):
    class Unbounded(Echo):
        def annotations(self, queries, responses):
            return ["a"] * len(responses)

    with pytest.raises(ValueError, match="has annotations and no max_annotation; add it"):
        make(Unbounded())
