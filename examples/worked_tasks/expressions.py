"""Parser and interpreter of arithmetic expressions over `x`, safe on any text.

    expression   term, then any number of `+ term` or `- term`
    term         factor, then any number of `* factor`
    factor       x, a number of digits, or ( expression )

Neither `eval` nor recursion is used. A text that is no expression, or is too long or too large, is an
`ExpressionError`; `STEPS` bounds the time and memory.
"""

STEPS = 256
"""The most characters of an expression, hence of symbols to read and operations to run."""

LARGEST = 10**12
"""Bound on the absolute value of every intermediate result."""

Program = tuple[int | str, ...]
"""Reverse Polish notation: numbers, `x` and signs; `x + 2 * x` is x 2 x * +."""

_RANK = {"+": 1, "-": 1, "*": 2}


class ExpressionError(ValueError):
    """The text is no expression, or one that is too long or too large."""


def parse(text: str, *, steps: int = STEPS) -> Program:
    """Parse an expression of up to `steps` characters; spaces between symbols are ignored."""
    if len(text) > steps:
        raise ExpressionError(f"an expression of {len(text)} characters; at most {steps} are read")
    program: list[int | str] = []
    pending: list[str] = []
    wants_operand = True
    place = 0
    while place < len(text):
        symbol = _symbol(text, place)
        place += len(symbol)
        if symbol == " ":
            continue
        if wants_operand != (symbol in "(x" or symbol.isdigit()):
            wanted = "x, a number or (" if wants_operand else "a sign or )"
            raise ExpressionError(f"{symbol!r} where {wanted} belongs, at character {place} of {text!r}")
        if symbol == "(":
            pending.append(symbol)
        elif wants_operand:
            program.append(symbol if symbol == "x" else _number(symbol))
            wants_operand = False
        elif symbol == ")":
            program += _close(pending, text)
        else:
            program += _pop_binding(pending, _RANK[symbol])
            pending.append(symbol)
            wants_operand = True
    program += _pop_binding(pending, 1)
    if wants_operand or pending:
        raise ExpressionError(f"{text!r} is incomplete")
    return tuple(program)


def run(program: Program, x: int) -> int:
    """Evaluate a program at `x`, exactly."""
    stack: list[int] = []
    for step in program:
        if isinstance(step, int):
            stack.append(step)
        elif step == "x":
            stack.append(x)
        else:
            right, left = stack.pop(), stack.pop()
            value = left + right if step == "+" else left - right if step == "-" else left * right
            if abs(value) >= LARGEST:
                raise ExpressionError(f"an intermediate value of {value}; it must stay below {LARGEST}")
            stack.append(value)
    return stack.pop()


def _symbol(text: str, place: int) -> str:
    """Return the symbol at `place`: a sign, bracket, space or `x`, or all digits of a number."""
    end = place
    while end < len(text) and text[end] in "0123456789":
        end += 1
    symbol = text[place : max(end, place + 1)]
    if end == place and symbol not in "x+-*() ":
        raise ExpressionError(f"{symbol!r} at character {place + 1} is no part of an expression")
    return symbol


def _number(digits: str) -> int:
    """Convert digits to a number, after a check of their count."""
    significant = digits.lstrip("0") or "0"
    if len(significant) >= len(str(LARGEST)):
        raise ExpressionError(f"a number of {len(significant)} digits; it must stay below {LARGEST}")
    return int(significant)


def _pop_binding(pending: list[str], rank: int) -> list[str]:
    """Pop the signs that bind at least as tightly as `rank`, back to the last open bracket."""
    popped: list[str] = []
    while pending and pending[-1] != "(" and _RANK[pending[-1]] >= rank:
        popped.append(pending.pop())
    return popped


def _close(pending: list[str], text: str) -> list[str]:
    """Pop the signs of a bracket that closes, and the bracket."""
    popped = _pop_binding(pending, 1)
    if not pending:
        raise ExpressionError(f"a ) without its ( in {text!r}")
    pending.pop()
    return popped
