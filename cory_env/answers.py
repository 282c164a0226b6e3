r"""The final number of a worked answer, read out of its text; nothing in it is ever run.

Only what stands before the next `Question:` counts. The number follows the last `####`; without one the last
`\boxed{`; then the last "answer is" or "A:"; else it is the last number of all. It is written one way
whatever it looked like: `$1,234.50`, `1234.5 dollars` and `2469/2` are all `1234.5`; `20%` is `20`. Words are
units, not numbers: `5 million` is `5`.
"""

import re
from collections import deque
from collections.abc import Iterator
from decimal import Context, Decimal, Inexact
from fractions import Fraction

LONGEST = 200_000
"""Characters at the end of an answer that are read."""

LONGEST_FRACTION = 300
"""Digits of a numerator or denominator up to which a fraction is reduced; a longer one stays as written."""

_EXACT = Context(prec=2000, traps=[Inexact])
"""Holds any quotient of such numbers whose decimals end, and refuses the others."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,100}+(?![0-9])|[0-9]++)"
"""Thousands may be set off by commas, in up to 100 groups: without a bound a long list costs its square."""

_NUMBER = re.compile(
    rf"""
    (?P<sign>-\ ?|\b(?:negative|minus)\ )?
    (?:(?:[$€£¥₹]|\b(?:Rs\.?|USD|EUR|GBP))\ ?(?P<inner>-)?|(?<![a-z0-9]))
    (?:(?P<whole>[0-9]{{1,9}})\ (?=[0-9]{{1,{LONGEST_FRACTION}}}/[0-9]))?
    (?P<top>{_DIGITS}(?:\.[0-9]++)?|\.[0-9]++)
    (?:\ ?/\ ?(?P<bottom>{_DIGITS})(?!\.[0-9]|\ ?/\ ?[0-9]))?
    """,
    re.VERBOSE | re.IGNORECASE,
)

_LEAD = re.compile(
    r"(?:\\[a-z]++|[^a-z0-9.\\-]|\\|[a-z]{1,20}\ ?=|(?:approximately|about|roughly|exactly|therefore|thus"
    r"|just|only|simply|now|still|equal to|a total of)\b)*+",
    re.IGNORECASE,
)
"""What may stand between a mark and its number."""

_UNITS = r"(?:\s?[a-z%°]{1,20}){0,2}"

_END = re.compile(_UNITS + r"\W*+$", re.IGNORECASE)
"""What may follow a number that is alone on its line."""

_OPERATION = re.compile(rf"{_UNITS}[\s)]*+(?P<sign>[=+*/^x-]|:(?=[0-9]))[\s(]*+(?=[-$€£.0-9])", re.IGNORECASE)
"""From one number of a calculation to the next."""

_PHRASE = re.compile(r"\banswer\s+(is)\b|\banswer\W{0,4}?:|(?-i:\bA):", re.IGNORECASE)

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2011\uff0d", "-"),  # minus, en dash, unbreakable and wide hyphen
        **dict.fromkeys("\u00d7\u00b7", "*"),
        "\u00f7": "/",
        "\u00bd": " 1/2",
        "\u00bc": " 1/4",
        "\u00be": " 3/4",
    }
)

_MARKUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<<[^<>]*>>"), ""),  # GSM8K's calculator notes: 48/2 = <<48/2=24>>24
    (re.compile(r"\{,\}|(?<=[0-9])(?:\\,|[\u00a0\u2009\u202f])(?=[0-9]{3})"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\\(?:times|cdot)\b"), "*"),
    (re.compile(r"\\div\b"), "/"),
    (
        re.compile(r"\\[dt]?frac ?(?:\{ ?([0-9.,]++) ?\}|([0-9])) ?(?:\{ ?([0-9.,]++) ?\}|([0-9]))"),
        r" \1\2/\3\4",
    ),
)


def extract_answer(text: str) -> str | None:
    """The final number of `text` in its one way of writing, or None where there is none.

    A calculation behind a mark counts by its result (`#### 48 + 24 = 72`); without one there is no answer.
    A fraction with no end of decimals stays one, reduced: `2/6` is `1/3`. Time grows with the length of the
    text, of which at most `LONGEST` characters are looked at.
    """
    plain = _plain(text)
    for begins, rest in _marked(plain):
        if number := _first(begins):
            result = _result(begins, number)
            return None if result is None else _written(begins, result)
        if (written := _last(rest)) is not None:
            return written
    return _last(plain)


def is_correct(text: str, answer: str) -> bool:
    """Whether the final number of `text` equals that of `answer` exactly, both read by `extract_answer`."""
    gold = extract_answer(answer)
    if gold is None:
        raise ValueError(f"the gold answer {answer[-60:]!r} holds no number; give one, as in '#### 72'")
    return extract_answer(text) == gold


def is_marked(text: str) -> bool:
    """Whether a number stands behind the last `####` of `text`, as GSM8K's own answers have it."""
    _, mark, rest = _plain(text).rpartition("####")
    return bool(mark) and _last(_line(rest)) is not None


def _plain(text: str) -> str:
    """The part that is read, its typography and LaTeX as plain signs."""
    text = text.partition("Question:")[0][-LONGEST:].translate(_SIGNS)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


def _line(text: str) -> str:
    """The first line that is not blank."""
    return text.lstrip().partition("\n")[0]


def _marked(text: str) -> Iterator[tuple[str, str]]:
    """Behind each mark, the best first: what may begin with the number, and where else to search for it."""
    _, mark, rest = text.rpartition("####")
    if mark:
        yield _line(rest), _line(rest)
    _, mark, rest = text.rpartition(r"\boxed{")
    if mark:
        yield (content := _braced(rest)), content
    if (phrase := _final(_PHRASE, text)) is None:
        return
    rest = text[phrase.end() :].lstrip()
    if phrase[1]:
        yield rest, re.split(r"[.!?](?=\s|$)|\n", rest, maxsplit=1)[0]
    else:  # "A:" begins a whole solution, unless its line is nothing but the number
        line = _line(rest)
        number = _first(line)
        yield (line if number and _END.match(line, number.end()) else ""), rest


def _braced(text: str) -> str:
    """What stands before the brace that closes one opened just before `text`; all of it if none does."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    return text


def _result(text: str, match: re.Match[str]) -> re.Match[str] | None:
    """The last number of the calculation that `match` begins; None unless it is a lone one or follows `=`."""
    number: re.Match[str] | None = match
    finished = True
    while number is not None and (operation := _OPERATION.match(text, number.end())):
        finished = operation["sign"] == "="
        number = _NUMBER.match(text, operation.end())
    return number if finished else None


def _first(text: str) -> re.Match[str] | None:
    """The number `text` begins with, but for what leads up to it."""
    lead = _LEAD.match(text)
    return _NUMBER.match(text, lead.end() if lead else 0)


def _last(text: str) -> str | None:
    """The last number anywhere in `text`."""
    match = _final(_NUMBER, text)
    return None if match is None else _written(text, match)


def _final(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of `pattern` in `text`."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _written(text: str, match: re.Match[str]) -> str | None:
    """A number's one way of writing; None for a division by zero."""
    top, bottom = match["top"].replace(",", ""), match["bottom"]
    if bottom is None:
        whole, _, part = top.partition(".")
        whole, part = whole.lstrip("0") or "0", part.rstrip("0")
        value = f"{whole}.{part}" if part else whole
    else:
        bottom = bottom.replace(",", "").lstrip("0")
        if not bottom:
            return None
        if max(len(top), len(bottom)) > LONGEST_FRACTION:
            value = f"{top}/{bottom}"
        else:
            value = _reduced(int(match["whole"] or 0) + Fraction(top) / int(bottom))
    return f"-{value}" if value != "0" and _is_negative(text, match) else value


def _reduced(value: Fraction) -> str:
    """Decimals where they end, else the fraction in lowest terms."""
    try:
        return format(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)), "f")
    except Inexact:
        return f"{value.numerator}/{value.denominator}"


def _is_negative(text: str, match: re.Match[str]) -> bool:
    """Whether a number's sign is its own: not a hyphen, a dash, a bullet or the minus of a difference."""
    if match["sign"] is None:
        return match["inner"] is not None
    near = text[max(match.start() - 20, 0) : match.start()]
    before = near.rstrip(" ")[-1:]
    if re.search(r"[0-9)%] *$|[\w\]}]$", near):
        return False
    return match["sign"] != "- " or before in ("", *"=:(*$")
