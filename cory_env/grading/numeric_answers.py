r"""Extraction and comparison of the final number in a worked solution; nothing in it is ever run.

Only the text before the next `Question:` counts. The number follows the last `####`; without one the last
`\boxed{`; then the last "answer is" or "A:"; else it is the last number in the text. It is normalised:
`$1,234.50`, `1234.5 dollars`, `2469/2` and `1.2345e3` are all `1234.5`; `20%` is `20`. Words are units, not
numbers: `5 million` is `5`. A number counts as a whole or not at all: `\sqrt{4}`, `2^3` and `12,5` hold none.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from math import isnan

LONGEST = 200_000
"""The number of characters at the end of a text that are read."""

LONGEST_FRACTION = 300
"""The most digits of a numerator or denominator of a fraction that is reduced; longer ones are not.

Also the largest exponent of ten."""

_EXACT = Context(prec=2000, traps=[Inexact])
"""Decimal context that computes quotients with finite decimals and raises `Inexact` for the others."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,100}+(?![0-9])|[0-9]++)"
"""Digits with or without thousands separators; without a bound on groups, long lists take quadratic time."""

_NUMBER = re.compile(
    rf"""
    (?P<sign>-\ ?|\b(?:negative|minus)\ )?
    (?:(?:[$€£¥₹]|\b(?:Rs\.?|USD|EUR|GBP))\ ?(?P<inner>-)?|(?<![a-z0-9]))
    (?:(?P<whole>[0-9]{{1,9}})\ (?=[0-9]{{1,{LONGEST_FRACTION}}}/[0-9]))?
    (?P<top>{_DIGITS}(?:\.[0-9]++)?|\.[0-9]++)
    (?:e(?P<exponent>[+-]?[0-9]++))?
    (?:\ ?/\ ?(?P<bottom>{_DIGITS})(?!\.[0-9]|\ ?/\ ?[0-9]))?
    """,
    re.VERBOSE | re.IGNORECASE,
)

_LEAD = re.compile(
    r"(?:\\[a-z]++|[^a-z0-9.\\-]|\\|[a-z]{1,20}\ ?=|(?:approximately|about|roughly|exactly|therefore|thus"
    r"|just|only|simply|now|still|equal to|a total of)\b)*+",
    re.IGNORECASE,
)
"""Text that may stand between a mark and its number."""

_UNITS = r"(?:\s?[a-z%°]{1,20}){0,2}"

_END = re.compile(_UNITS + r"\W*+$", re.IGNORECASE)
"""Text that may follow a number that has a line for itself."""

_OPERATION = re.compile(
    rf"(?:{_UNITS}[\s)}}]*+(?P<sign>\*\*(?=[0-9])|[=+*/x-]|:(?=[0-9]))|[\s)}}]*+\^)[\s({{]*+(?=[-$€£.0-9])",
    re.IGNORECASE,
)
"""Text between two numbers of a calculation; an exponent behind a unit belongs to the unit."""

_NEAR = 40
"""The number of characters around a number that tell whether it is a part of something larger."""

_PART_BEFORE = re.compile(
    r"(?:\^|√|sqrt(?:\[[^\]]*\])?|\\(?:[dt]?frac|log|ln|exp|sin|cos|tan|binom|overline)|\}\{)[\s({\[]*-?\ ?$"
    r"|[0-9]\.$|(?<![0-9,])[0-9]++,$",
    re.IGNORECASE,
)
"""Text before a number that is an exponent, an argument of a function, or the rest of a longer number."""

_PART_BEHIND = re.compile(
    r"[\s)}]*+(?:\^|√|π|\\(?:sqrt|pi|overline|frac)\b)|\.(?:[0-9]|\\overline)|,[0-9]++(?![0-9,])"
    r"|(?:,[0-9]{2})+,[0-9]{3}(?![0-9,])",
    re.IGNORECASE,
)
"""Text behind a number that is a factor, a base, or the beginning of a longer number."""

_PHRASE = re.compile(
    r"\banswer\s+(?P<is>is)\b|(?P<answer>\banswer)\W{0,4}?:|(?<!\w )(?-i:\bA):", re.IGNORECASE
)

_FORMULA = re.compile(
    r"\b[a-z]\s?[+*^<>]|[+*^]\s?[a-z]\b|\b[inxyz]\s?[-/]|[-/]\s?[inxyz]\b|[0-9][inxyz]\b|[<>≤≥±]|\bor\b"
    r"|\\(?:infty|pi|sqrt|pm|begin|frac)\b",
    re.IGNORECASE,
)
"""What tells a formula from a number and its unit, such as `72 g`, `5 m/s` and `5 \\text{ feet}`."""

_BETWEEN = re.compile(r"(?:[\s,;()\[\]{}$]|\band\b|\bor\b)*+\.?\s*", re.IGNORECASE)
"""Text around the numbers of a list."""

_HALVES = "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2011\uff0d", "-"),  # minus, en dash, unbreakable and wide hyphen
        **dict.fromkeys("\u00d7\u00b7", "*"),
        **dict.fromkeys("\u00f7\u2044", "/"),
        **{half: unicodedata.normalize("NFKC", half).replace("\u2044", "/") for half in _HALVES},
    }
)

_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"


def _quotient(match: re.Match[str]) -> str:
    r"""Write a `\frac` as a fraction with its sign in front."""
    signs = "".join(match[name] or "" for name in ("sign", "top_sign", "bottom_sign"))
    sign = "-" if signs.count("-") % 2 else ""
    return f" {sign}{match['top'] or match['digit']}/{match['bottom'] or match['last']}"


_MARKUP: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"<<[^<>]*>>"), ""),  # GSM8K's calculator notes: 48/2 = <<48/2=24>>24
    (
        re.compile(
            r"\{,\}|(?<=[0-9])(?:\\[,;:\ ]|\\thinspace\ ?|[~'_\u2019\u00a0\u2007\u2009\u202f])"
            r"(?=[0-9]{3}(?![0-9]))"
        ),
        ",",
    ),
    (
        re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:\ [0-9]{3}){0,100}?\ 0[0-9]{2}(?:\ [0-9]{3}){0,100}+(?![0-9])"),
        lambda match: match[0].replace(" ", ","),
    ),
    (
        re.compile(
            rf"(?<=[a-z])[{_SUPERSCRIPTS}]++|(?:(?<=[a-z])|(?<=[a-z]\}}))\^\{{?-?[0-9]{{1,3}}\}}?", re.I
        ),
        "",
    ),
    (re.compile(rf"[{_SUPERSCRIPTS}]++"), "^2"),  # whatever the exponent, a power is not read
    (re.compile(r"\\!|\\(?:left|right)(?![a-z])"), ""),
    (re.compile(r"\^\ ?\{?\\circ\}?"), "°"),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\\(?:times|cdot)(?![a-z])"), "*"),
    (re.compile(r"\\div(?![a-z])"), "/"),
    (re.compile(r"(?<=[0-9])\ ?x(?=\ ?[0-9])", re.I), " x "),
    (
        re.compile(
            r"(?P<sign>-?)\ ?\\[dt]?frac"
            r"\ ?(?:\{(?P<top_sign>[-\ ]*)\$?(?P<top>[0-9.,]++)\ ?\}|(?P<digit>[0-9]))"
            r"\ ?(?:\{(?P<bottom_sign>[-\ ]*)\$?(?P<bottom>[0-9.,]++)\ ?\}|(?P<last>[0-9]))"
        ),
        _quotient,
    ),
)


def extract_answer(text: str) -> str | None:
    """Return the final number of `text`, normalised, or None if there is none.

    A calculation behind a mark counts by its result (`#### 48 + 24 = 72`); one without a result is no answer.
    A fraction without finite decimals is reduced: `2/6` is `1/3`. Time is linear in the length of the text,
    of which at most `LONGEST` characters are read.
    """
    plain = _plain(text)
    for start, rest in _marked(plain):
        if number := _first(start):
            result = _result(start, number)
            return None if result is None else _normalise(start, result)
        if last := _final(_NUMBER, rest):
            return _normalise(rest, last)
    last = _final(_NUMBER, plain)
    return None if last is None else _normalise(plain, last)


def is_correct(text: str, answer: str) -> bool:
    """Return whether the final numbers of `text` and `answer`, by `extract_answer`, are exactly equal."""
    gold = extract_answer(answer)
    if gold is None:
        raise ValueError(f"the gold answer {answer[-60:]!r} holds no number; give one, as in '#### 72'")
    return extract_answer(text) == gold


def text_of_answer(answer: object) -> str:
    """Return a gold answer of a data set as a text; ValueError for an empty cell."""
    if answer is None or (isinstance(answer, float) and isnan(answer)) or not (text := str(answer).strip()):
        raise ValueError("an answer is missing; drop the row, or give what is right")
    return text


def behind_marks(text: str) -> list[str]:
    """Return what stands behind the last mark of each kind, or in it."""
    return [rest for _, rest in _marked(text)]


def is_one_number(answer: str) -> bool:
    """Return whether an answer, without its mark, stands for its final number.

    A text of several sentences does. A sentence does that holds one number or one calculation, unless it is a
    formula: `10:30`, `x = 5 or x = -3`, `2x + 3` and `x > 3` do not.
    """
    plain = _plain(answer).strip().rstrip(".!?")
    numbers = list(_NUMBER.finditer(plain))
    if not numbers or _sentence(plain) != plain:
        return bool(numbers)
    result = _result(plain, numbers[0])
    whole = result is not None and result.end() == numbers[-1].end()
    return whole and not _FORMULA.search(plain)


def extract_numbers(text: str) -> list[str | None] | None:
    """Return the numbers of a list behind a mark or of a text that is one, such as `(5, -6)`; else None."""
    plain = _plain(text)
    marked = next((rest for _, rest in _marked(plain)), plain)
    listed = re.sub(r",(?![0-9]{3}(?![0-9]))", ", ", marked)
    between, numbers = _NUMBER.subn("", listed)
    if numbers < 2 or not _BETWEEN.fullmatch(between):
        return None
    return [_normalise(listed, number) for number in _NUMBER.finditer(listed)]


def _plain(text: str) -> str:
    """Return the part that is read, with typography and LaTeX as plain signs."""
    text = text.partition("Question:")[0][-LONGEST:]
    text = re.sub(rf"(?<=[0-9])(?=[{_HALVES}])", " ", text).translate(_SIGNS)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


def _line(text: str) -> str:
    return text.lstrip().partition("\n")[0]


def _sentence(text: str) -> str:
    return re.split(r"[.!?](?=\s|$)|\n", text, maxsplit=1)[0]


def _marked(text: str) -> Iterator[tuple[str, str]]:
    """Yield for each mark, best first: text that may begin with the number, and text to search for it."""
    _, mark, rest = text.rpartition("####")
    if mark:
        yield _line(rest), _line(rest)
    _, mark, rest = text.rpartition(r"\boxed{")
    if mark:
        yield (content := _braced(rest)), content
    if (phrase := _final(_PHRASE, text)) is None:
        return
    rest = text[phrase.end() :].lstrip()
    if phrase["is"]:
        yield rest, _sentence(rest)
    else:  # "A:" begins a whole solution, unless its line is nothing but the number, or "Answer:" a sentence
        line = _sentence(rest) if phrase["answer"] else _line(rest)
        number = _first(line)
        yield (line if number and _END.match(line, number.end()) else ""), rest


def _braced(text: str) -> str:
    """Return `text` up to the brace that closes one opened just before it; all of `text` if none does."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    return text


def _result(text: str, match: re.Match[str]) -> re.Match[str] | None:
    """Return the result of the calculation that `match` begins; a single number is its own result.

    None for a calculation of several numbers whose last one does not follow `=`.
    """
    number: re.Match[str] | None = match
    finished = True
    while number is not None and (operation := _OPERATION.match(text, number.end())):
        finished = operation["sign"] == "="
        number = _NUMBER.match(text, operation.end())
    return number if finished else None


def _first(text: str) -> re.Match[str] | None:
    """Return the number that `text` begins with, after an optional lead."""
    lead = _LEAD.match(text)
    return _NUMBER.match(text, lead.end() if lead else 0)


def _final(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _normalise(text: str, match: re.Match[str]) -> str | None:
    """Return the normal form of a number in `text`; None for a division by zero and a part of something."""
    if _is_part(text, match):
        return None
    top, bottom = match["top"].replace(",", ""), match["bottom"]
    if match["exponent"]:
        if max(len(top), len(match["exponent"])) > LONGEST_FRACTION:
            return None
        if abs(int(match["exponent"])) > LONGEST_FRACTION:
            return None
        top = format(_EXACT.scaleb(Decimal(top), int(match["exponent"])), "f")
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


def _is_part(text: str, match: re.Match[str]) -> bool:
    """Return whether a number is a part of a root, a power, a product with a root, or a longer number."""
    before = text[max(match.start() - _NEAR, 0) : match.start()]
    behind = text[match.end() : match.end() + _NEAR]
    return bool(_PART_BEFORE.search(before) or _PART_BEHIND.match(behind))


def _reduced(value: Fraction) -> str:
    """Return decimals if they are finite, else the fraction in lowest terms."""
    try:
        return format(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)), "f")
    except Inexact:
        return f"{value.numerator}/{value.denominator}"


def _is_negative(text: str, match: re.Match[str]) -> bool:
    """Return whether a number is negative: its sign is no hyphen, dash, bullet or minus of a difference."""
    if match["sign"] is None:
        return match["inner"] is not None
    near = text[max(match.start() - 20, 0) : match.start()]
    before = near.rstrip(" ")[-1:]
    if re.search(r"[0-9)%] *$|[\w\]}]$", near):
        return False
    return match["sign"] != "- " or before in ("", *"=:(*$")
