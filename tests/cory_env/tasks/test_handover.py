"""handover: what each seat reads, and who is paid for a solution in two halves."""

import numpy as np
import pytest

from cory_env.tasks.arithmetic import Task as Arithmetic
from cory_env.tasks.handover import Task
from cory_env.vector import VectorGame


@pytest.fixture(scope="module")
def task() -> Task:
    return Task()


def test_problems_are_those_of_arithmetic(task):
    worked = Arithmetic(digits=2, terms=4, signs="+-", worked=True)
    assert [q.row for q in task.queries("test")] == [q.row for q in worked.queries("test")]


@pytest.mark.parametrize("cut", [0.3, 0.5, 0.7])
def test_the_observer_reads_where_the_pioneer_stopped_and_is_paid_for_the_end(task, cut):
    query = task.queries("test")[0]
    ids = task.tokenizer.encode(query.row["answer"])
    at = int(cut * len(ids))
    rest = [*ids[at:], min(task.tokenizer.eos)]
    game = VectorGame(task, seats=2, max_response=len(ids) + 1)
    game.reset([query], np.array([[at, len(rest)]]))
    game.respond("pioneer_0", np.array([ids[:at]]), np.array([at]))
    prompt_BP, length_B = game.prompts("observer_1")
    read = task.tokenizer.decode(prompt_BP[0, : length_B[0]].tolist())
    assert read == f"Question: {query.text}\nAnswer:{query.row['answer'][:at]}"
    game.respond("observer_1", np.array([rest]), np.array([len(rest)]))
    assert game.scores().tolist() == [[0.0, 1.0]]
    assert game.payoffs().tolist() == [[1.0, 1.0]]


def test_three_seats_write_one_text(task):
    assert task.template("observer_2") == "Question:{query}\nAnswer:{response_0}{response_1}"
