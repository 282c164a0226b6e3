"""Views: the prompt of each seat, and the templates it is compiled from."""

import pytest

from cory_env import VectorGame, env, make_views
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer
from cory_env.views import check_window, compile_view, resolve_views

ABC = CharTokenizer("abc!", stops=2)  # a b c ! = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=2)
RESPONSES = [(0, 4), (1, 1), (2, 5), ()]
"""Responses of seats 0 to 3: the first and third end with an EOS, the second at its cap."""


def prompt(seat, **options):
    views = make_views(ECHO, seats=4, **options)
    return next(view for view in views if view.seat == seat).prompt((3, 3), RESPONSES)


def test_literals_and_responses_are_joined_as_ids_without_eos():
    view = compile_view("observer_1", "a{query}b{response_0}c{query}", seen=(0,), tokenizer=ABC)
    assert view.segments == ((0,), -1, (1,), 0, (2,), -1)
    assert view.prompt((3, 3), RESPONSES) == (0, 3, 3, 1, 0, 2, 3, 3)


@pytest.mark.parametrize(
    ("sees", "seen_by_observer_3"),
    [("all", (0, 1, 1, 2)), ("previous", (2,)), ("pioneer", (0,)), ("none", ())],
)
def test_a_view_shows_the_responses_it_names(sees, seen_by_observer_3):
    assert prompt("observer_3", sees=sees) == (3, 3, *seen_by_observer_3)
    assert prompt("pioneer_0", sees=sees) == (3, 3)


def test_seats_may_see_differently():
    views = make_views(ECHO, seats=3, sees={"observer_2": "previous"})
    assert [view.template for view in views] == ["{query}", "{query}{response_0}", "{query}{response_1}"]


def test_a_template_of_the_user_replaces_that_of_the_task():
    assert prompt("observer_1", templates={"observer_1": "!{response_0}!{query}"}) == (3, 0, 3, 3, 3)


def test_a_doubled_brace_is_a_brace():
    braces = CharTokenizer("{}")
    assert compile_view("pioneer_0", "{{{query}}}", seen=(), tokenizer=braces).prompt((9,), []) == (0, 9, 1)


@pytest.mark.parametrize(
    ("seat", "template", "fault"),
    [
        ("pioneer_0", "abc", r"template of pioneer_0 lacks \{query\}"),
        ("observer_1", "{query}", r"template of observer_1 lacks \{response_0\}"),
        ("observer_2", "{query}{response_0}", r"template of observer_2 lacks \{response_1\}"),
        (
            "observer_1",
            "{query}{response_0}{response_1}",
            r"observer_1 holds \{response_1\}, which it does not see",
        ),
        ("observer_1", "{query}{response_0}{}", r"observer_1 holds \{\}, which it does not see"),
        ("pioneer_0", "{query", "template of pioneer_0 cannot be read"),
        ("observer_9", "{query}", "no seat called 'observer_9'; there are pioneer_0, observer_1"),
    ],
)
def test_a_wrong_template_is_an_error_that_names_the_placeholder(seat, template, fault):
    with pytest.raises(ValueError, match=fault):
        make_views(ECHO, seats=4, templates={seat: template})


def test_an_unknown_view_names_the_choices():
    with pytest.raises(
        ValueError, match="no view called 'everything'; there are all, previous, pioneer, none"
    ):
        make_views(ECHO, seats=2, sees="everything")


def test_views_of_another_number_of_seats_are_refused():
    views = make_views(ECHO, seats=2)
    assert resolve_views(ECHO, seats=2, views=views) == views
    with pytest.raises(ValueError, match="views are for pioneer_0, observer_1; a game of 1 needs pioneer_0"):
        resolve_views(ECHO, seats=1, views=views)


class Secret(Echo):
    """echo whose observers are not shown the query."""

    def template(self, seat):
        return (
            super().template(seat) if seat == "pioneer_0" else super().template(seat).replace("{query}", "!")
        )


def test_a_task_may_hide_the_query_from_a_seat_and_no_template_shows_it():
    secret = Secret(ABC, length=2)
    templates = [view.template for view in make_views(secret, seats=3)]
    assert templates == ["{query}", "!{response_0}", "!{response_0}{response_1}"]
    assert [view.template for view in make_views(secret, seats=2, sees="none")] == ["{query}", "!"]
    with pytest.raises(ValueError, match=r"observer_1 holds \{query\}, which it does not see"):
        make_views(secret, seats=2, templates={"observer_1": "{query}{response_0}"})
    with pytest.raises(ValueError, match="observer_1 may give a prompt without tokens"):
        make_views(secret, seats=2, templates={"observer_1": "{response_0}"})


def test_longest_prompt_counts_every_segment():
    view = compile_view("observer_2", "ab{query}c{response_0}{query}{response_1}", seen=(0, 1), tokenizer=ABC)
    assert view.max_prompt(7, 16) == 3 + 2 * 7 + 2 * 16


def test_a_prompt_that_may_outgrow_the_window_is_refused_with_its_seat():
    views = make_views(ECHO, seats=2)  # observer: 2 of query + 4 + its own 4 = 10
    check_window(views, max_query=2, max_response=4, window=10)
    with pytest.raises(
        ValueError, match=r"observer_1 may read 6 tokens and write 4, together 10; .* window is 9"
    ):
        check_window(views, max_query=2, max_response=4, window=9)


def test_the_error_names_the_seat_that_needs_most_and_the_view_that_would_fit():
    # observer_15: 3 of query + 15 responses of 16 + its own 16 = 259; with "previous" 3 + 16 + 16 = 35
    echo = Echo(ABC, length=3)
    fault = (
        r"observer_15 may read 243 tokens and write 16, together 259; the model's window is 256: show each "
        r"observer only the response before its own, which needs a window of 35 \(views=\"previous\", "
        r"--sees previous\), or lower max_query"
    )
    for make in (VectorGame, env):
        with pytest.raises(ValueError, match=fault):
            make(echo, seats=16, max_response=16, window=256)
        make(echo, seats=16, max_response=16, window=256, views="previous")
        make(echo, seats=16, max_response=16, window=259)


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({"seats": 2}, 34),  # observer_1 has one response as it is
        ({"seats": 16}, 34),  # "previous" needs 35
        ({"seats": 16, "sees": "previous"}, 34),
        ({"seats": 3, "sees": {"observer_1": "none"}}, 50),
    ],
    ids=str,
)
def test_the_error_does_not_name_a_view_that_would_not_help(options, window):
    views = make_views(Echo(ABC, length=3), **options)
    with pytest.raises(ValueError, match=f"window is {window}: lower max_query, max_response or shorten"):
        check_window(views, max_query=3, max_response=16, window=window)
