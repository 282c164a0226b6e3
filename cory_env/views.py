"""Views: the prompt of each seat, compiled from a template to segments of token ids.

Literal text is tokenised once; queries and responses enter as the ids they are, EOS removed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cory_env.nearest import did_you_mean
from cory_env.tasks.base import Task, annotates
from cory_env.templates import Template, read_template
from cory_env.tokenizer import Tokenizer, encode_inside, start_of, without_start
from cory_env.types import seat_names, without_end

QUERY = -1
"""Segment that stands for the query, where other numbers stand for the response of a seat."""

Seen = str | Mapping[str, str] | Sequence["View"]
"""What seats see, one of `SEES`, for all or by seat; or the views themselves."""

SEES = ("all", "previous", "pioneer", "none")
"""Responses an observer sees: those of all earlier seats, of the one before it, of the pioneer, or none."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The prompt of one seat as segments of ids."""

    seat: str
    """The seat that reads this prompt."""

    template: str
    """The template it was compiled from."""

    segments: tuple[tuple[int, ...] | int, ...]
    """Literal ids, or `QUERY`, or the index of the seat whose response is inserted."""

    eos: frozenset[int]
    """Ids that end a response; they are left out of the prompt."""

    start: tuple[int, ...] = ()
    """What the tokenizer puts before a text, such as BOS; a query that begins with it is inserted without."""

    annotation: int = 0
    """The most tokens that the task adds behind a response (`cory_env.tasks.base.Annotates`)."""

    def prompt(self, query: Sequence[int], responses: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the token ids of this prompt.

        `responses` are ordered by seat, EOS included; those of later seats are not read.
        """
        ids: list[int] = []
        for segment in self.segments:
            if isinstance(segment, tuple):
                ids += segment
            elif segment == QUERY:
                ids += without_start(query, self.start)
            else:
                ids += without_end(responses[segment], self.eos)
        return tuple(ids)

    def max_prompt(self, max_query: int, max_response: int) -> int:
        """Return the most tokens this prompt can have."""
        longest, shown = {QUERY: max_query}, max_response + self.annotation
        return sum(len(s) if isinstance(s, tuple) else longest.get(s, shown) for s in self.segments)


def make_views(
    task: Task,
    *,
    seats: int,
    sees: str | Mapping[str, str] = "all",
    templates: Mapping[str, Template] | None = None,
) -> tuple[View, ...]:
    """Compile one view per seat, from `templates` if it names the seat and from the task otherwise.

    An observer that sees one response gets the template of `observer_1`; one that sees none gets that of the
    pioneer (the ablation without knowledge transfer). `sees` may differ by seat. A template must hold every
    response its seat sees and, unless the task hides it from that seat, `{query}`; and nothing else.
    """
    if isinstance(task, type):
        raise ValueError(f"the task is the class {task.__name__}; make one of it: {task.__name__}(...)")
    names = seat_names(seats)
    own = dict(templates or {})
    by_seat = dict(sees) if isinstance(sees, Mapping) else dict.fromkeys(names, sees)
    for options in (own, by_seat):
        if unknown := sorted(set(options) - set(names)):
            raise ValueError(f"there is no seat called {unknown[0]!r}; there are {', '.join(names)}")
    views = []
    for k, seat in enumerate(names):
        seen = _seen(k, by_seat.get(seat, "all"))
        pieces = read_template(seat, task.template(seat), task.tokenizer)
        query = any(name == "query" for _, name in pieces)
        template = own[seat] if seat in own else _task_template(task, names, k, seen, query=query)
        views.append(compile_view(seat, template, seen=seen, tokenizer=task.tokenizer, query=query))
    return tuple(views)


def resolve_views(task: Task, *, seats: int, views: Seen | None) -> tuple[View, ...]:
    """Return the views that an environment's option `views` stands for.

    None means the views of the task; a string is one of `SEES`, for all or by seat; a sequence of views must
    fit the seats.
    """
    annotation = task.max_annotation if annotates(task) else 0
    if views is None or isinstance(views, str | Mapping):
        made = make_views(task, seats=seats, sees=views or "all")
        return tuple(replace(view, annotation=annotation) for view in made)
    if tuple(view.seat for view in views) != seat_names(seats):
        got = ", ".join(view.seat for view in views)
        raise ValueError(
            f"views are for {got or 'no seat'}; a game of {seats} needs {', '.join(seat_names(seats))}"
        )
    return tuple(replace(view, annotation=annotation) for view in views)


def compile_view(
    seat: str, template: Template, *, seen: Sequence[int], tokenizer: Tokenizer, query: bool = True
) -> View:
    """Compile `template` for `seat`, which sees the responses of the seats `seen` and perhaps the query."""
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
    start = start_of(tokenizer)
    if start and isinstance(template, str):  # a chat template writes BOS itself
        segments.insert(0, start)
        if isinstance(segments[1], tuple):
            segments[1] = tuple(without_start(segments[1], start))
    text = "".join(literal + (f"{{{name}}}" if name else "") for literal, name in pieces)
    return View(seat=seat, template=text, segments=tuple(segments), eos=tokenizer.eos, start=start)


def check_window(views: Sequence[View], *, max_query: int, max_response: int, window: int) -> None:
    """Raise a ValueError if the prompt and response of a seat together can outgrow the model's window.

    The error names the seat that needs the largest window, and `views="previous"` if that would fit.
    """
    prompts = [view.max_prompt(max_query, max_response) for view in views]
    needed = max(prompts) + max_response
    if needed <= window:
        return
    seat = views[prompts.index(max(prompts))].seat
    # With "previous" every observer has a prompt like that of observer_1, which has one earlier response.
    previous = max(prompts[:2]) + max_response
    remedy = ""
    if len(views) > 2 and 0 in views[1].segments and previous <= window:
        remedy = (
            "show each observer only the response before its own, which needs a window of "
            f'{previous} (views="previous", --sees previous), or '
        )
    raise ValueError(
        f"{seat} may read {max(prompts)} tokens and write {max_response}, together {needed}; the model's "
        f"window is {window}: {remedy}lower max_query, max_response or shorten the template"
    )


def _seen(k: int, sees: str) -> tuple[int, ...]:
    """Return the indices of the seats whose responses seat `k` sees."""
    if sees not in SEES:
        raise ValueError(f"no view called {sees!r}; there are {', '.join(SEES)}{did_you_mean(sees, SEES)}")
    choices = {"all": range(k), "previous": range(max(k - 1, 0), k), "pioneer": range(min(k, 1)), "none": ()}
    return tuple(choices[sees])


def _task_template(task: Task, names: Sequence[str], k: int, seen: Sequence[int], *, query: bool) -> Template:
    """Return the task's template for seat `k`, chosen by the number of responses the seat sees."""
    if not seen and query:
        return task.template(names[0])
    if not seen:
        return _replaced(task.template(names[k]), r"\{response_\d+\}", "")
    if len(seen) == 1:
        return _replaced(task.template(names[1]), r"\{response_0\}", f"{{response_{seen[0]}}}")
    return task.template(names[k])


def _replaced(template: Template, pattern: str, text: str) -> Template:
    """Return a template with every match of a pattern replaced, in a chat in the content of each message."""
    if isinstance(template, str):
        return re.sub(pattern, text, template)
    return [{**message, "content": re.sub(pattern, text, message["content"])} for message in template]
