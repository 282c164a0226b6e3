"""The scripted players, on every query of the tasks that they are made for."""

import pytest

from cory_env.tasks.arithmetic import Task
from cory_env.types import Response
from examples import players


@pytest.mark.parametrize(
    "options", [{"digits": 2, "terms": 4, "signs": "+-", "worked": True}, {"signs": "+-"}, {"terms": 3}]
)
@pytest.mark.parametrize("seat", ["pioneer_0", "observer_1"])
def test_the_right_player_is_always_right_and_the_wrong_one_never(options, seat):
    task = Task(**options)
    queries = task.queries("test")[:200]
    template = task.template(seat).replace("{query}", "{0}").replace("{response_0}", "{1}")
    earlier = " 40 - 27 = 13\n#### 13" if task.worked else "13"
    texts = [template.format(query.text, earlier) for query in queries]
    for player, want in ((players.right(), 1.0), (players.wrong(), 0.0)):
        responses = [Response((), text, seat) for text in player.respond(texts)]
        assert task.score(queries, responses) == [want] * len(queries)
