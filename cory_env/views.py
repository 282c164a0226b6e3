"""What each seat reads, and in which words: templates compiled once to segments of token ids.

Literal text is tokenised once; queries and responses enter as the ids they are, EOS removed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cory_env.game import seat_names
from cory_env.templates import Template, parse_words, read_template
from cory_env.tokenizer import Tokenizer, encode_inside

if TYPE_CHECKING:
    from cory_env.tasks.base import Task

QUERY = -1
"""Stands for the query where a segment is a seat's index."""

SEES = ("all", "previous", "pioneer", "none")
"""Whose responses an observer reads: every earlier seat's, the one before, the pioneer's, nobody's."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The prompt of one seat as segments of ids."""

    seat: str
    """Whose view it is."""

    template: str
    """The words it was compiled from."""

    segments: tuple[tuple[int, ...] | int, ...]
    """Literal ids, or `QUERY`, or the index of the seat whose response goes here."""

    eos: frozenset[int]
    """Ids that end a response; not shown."""

    def prompt(self, query: Sequence[int], responses: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """This prompt's token ids. `responses` go by seat index, EOS included; later seats' are not read."""
        ids: list[int] = []
        for segment in self.segments:
            if isinstance(segment, tuple):
                ids += segment
            elif segment == QUERY:
                ids += query
            else:
                said = responses[segment]
                ids += said[:-1] if said and said[-1] in self.eos else said
        return tuple(ids)

    def max_prompt(self, max_query: int, max_response: int) -> int:
        """The most tokens this prompt can have."""
        longest = {QUERY: max_query}
        return sum(len(s) if isinstance(s, tuple) else longest.get(s, max_response) for s in self.segments)


def make_views(
    task: "Task",
    *,
    seats: int,
    sees: str | Mapping[str, str] = "all",
    templates: Mapping[str, Template] | None = None,
) -> tuple[View, ...]:
    """One view per seat, worded by `templates` where they name a seat and by the task elsewhere.

    An observer that reads one response is worded like `observer_1`, one that reads none like the pioneer (the
    ablation without knowledge transfer). `sees` may differ by seat. A template must hold every response its
    seat sees and, unless the task hides it from that seat, `{query}`; and nothing else.
    """
    names = seat_names(seats)
    given = dict(templates or {})
    by_seat = dict(sees) if isinstance(sees, Mapping) else dict.fromkeys(names, sees)
    for what in (given, by_seat):
        if strangers := sorted(set(what) - set(names)):
            raise ValueError(f"there is no seat called {strangers[0]!r}; there are {', '.join(names)}")
    views = []
    for k, seat in enumerate(names):
        seen = _seen(k, by_seat.get(seat, "all"))
        query = any(name == "query" for _, name in parse_words(seat, task.template(seat)))
        template = given[seat] if seat in given else _wording(task, names, k, seen, query=query)
        views.append(compile_view(seat, template, seen=seen, tokenizer=task.tokenizer, query=query))
    return tuple(views)


def resolve_views(task: "Task", *, seats: int, views: str | Sequence[View] | None) -> tuple[View, ...]:
    """`views` as every face of the game takes it: None for the task's own, one of `SEES`, or views."""
    if views is None or isinstance(views, str):
        return make_views(task, seats=seats, sees=views or "all")
    if tuple(view.seat for view in views) != seat_names(seats):
        got = ", ".join(view.seat for view in views)
        raise ValueError(
            f"views are for {got or 'no seat'}; a game of {seats} needs {', '.join(seat_names(seats))}"
        )
    return tuple(views)


def compile_view(
    seat: str, template: Template, *, seen: Sequence[int], tokenizer: Tokenizer, query: bool = True
) -> View:
    """The view of `seat` in the words of `template`: what the seats `seen` said and, if shown, the query."""
    needed = {"query": QUERY} if query else {}
    needed |= {f"response_{k}": k for k in seen}
    pieces = read_template(seat, template, tokenizer)
    used = [name for _, name in pieces if name is not None]
    for name in used:
        if name not in needed:
            choices = ", ".join(f"{{{n}}}" for n in needed) or "no placeholder"
            raise ValueError(
                f"the template of {seat} holds {{{name}}}, which it does not see; it may hold {choices}"
            )
    if missing := [name for name in needed if name not in used]:
        raise ValueError(
            f"the template of {seat} lacks {{{missing[0]}}}: {template!r}; add it, or show less with views"
        )
    segments: list[tuple[int, ...] | int] = []
    for literal, placeholder in pieces:
        encode = partial(encode_inside, tokenizer) if segments else tokenizer.encode
        segments += [tuple(encode(literal))] if literal else []
        segments += [] if placeholder is None else [needed[placeholder]]
    if not query and not any(isinstance(segment, tuple) for segment in segments):
        raise ValueError(f"the template of {seat} may give a prompt without tokens: {template!r}; add a word")
    words = "".join(literal + (f"{{{name}}}" if name else "") for literal, name in pieces)
    return View(seat=seat, template=words, segments=tuple(segments), eos=tokenizer.eos)


def check_window(views: Sequence[View], *, max_query: int, max_response: int, window: int) -> None:
    """Refuse a game in which some seat's prompt and response together could outgrow the model's window."""
    for view in views:
        prompt = view.max_prompt(max_query, max_response)
        if prompt + max_response > window:
            raise ValueError(
                f"{view.seat} may read {prompt} tokens and write {max_response}, together "
                f"{prompt + max_response}; the model's window is {window}: lower max_query, max_response or "
                "shorten the template"
            )


def _seen(k: int, sees: str) -> tuple[int, ...]:
    """The seats whose responses seat `k` reads."""
    if sees not in SEES:
        raise ValueError(f"no view called {sees!r}; there are {', '.join(SEES)}")
    choices = {"all": range(k), "previous": range(max(k - 1, 0), k), "pioneer": range(min(k, 1)), "none": ()}
    return tuple(choices[sees])


def _wording(task: "Task", names: Sequence[str], k: int, seen: Sequence[int], *, query: bool) -> str:
    """The task's template for seat `k`: by what it reads, so that showing less rewords it."""
    if not seen and query:
        return task.template(names[0])
    if not seen:
        return re.sub(r"\{response_\d+\}", "", task.template(names[k]))
    if len(seen) == 1:
        return task.template(names[1]).replace("{response_0}", f"{{response_{seen[0]}}}")
    return task.template(names[k])
