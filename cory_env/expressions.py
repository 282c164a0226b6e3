"""A tiny language, read and run here: one expression over `x`, in steps that are counted.

    expression   term, then any number of `+ term` or `- term`
    term         factor, then any number of `* factor`
    factor       x, a number of digits, or ( expression )

Nothing is handed to Python's own compiler and nothing calls itself, so text from anywhere is safe to run:
what is too long, too large or no expression is refused, in time and memory that `STEPS` bounds.
"""

STEPS = 256
"""Characters of an expression; so at most as many symbols to read and operations to do."""

LARGEST = 10**12
"""Every number on the way stays closer to 0 than this."""

Program = tuple[int | str, ...]
"""Numbers, `x` and signs, each sign behind its two operands: `x + 2 * x` is x 2 x * +."""

_RANK = {"+": 1, "-": 1, "*": 2}


class ExpressionError(ValueError):
    """What was written is no expression, or too much of one."""


def parse(text: str, *, steps: int = STEPS) -> Program:
    """The program of an expression of up to `steps` characters; spaces between symbols do not count."""
    if len(text) > steps:
        raise ExpressionError(f"an expression of {len(text)} characters; at most {steps} are read")
    program: list[int | str] = []
    waiting: list[str] = []
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
            waiting.append(symbol)
        elif wants_operand:
            program.append(symbol if symbol == "x" else _number(symbol))
            wants_operand = False
        elif symbol == ")":
            program += _close(waiting, text)
        else:
            program += _before(waiting, _RANK[symbol])
            waiting.append(symbol)
            wants_operand = True
    program += _before(waiting, 1)
    if wants_operand or waiting:
        raise ExpressionError(f"{text!r} breaks off")
    return tuple(program)


def run(program: Program, x: int) -> int:
    """The value for this `x`, exact."""
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
                raise ExpressionError(f"a value of {value} on the way; below {LARGEST} is kept")
            stack.append(value)
    return stack.pop()


def _symbol(text: str, place: int) -> str:
    """One sign, bracket, space or `x`, or all digits of a number."""
    end = place
    while end < len(text) and text[end] in "0123456789":
        end += 1
    symbol = text[place : max(end, place + 1)]
    if end == place and symbol not in "x+-*() ":
        raise ExpressionError(f"{symbol!r} at character {place + 1} is no part of an expression")
    return symbol


def _number(digits: str) -> int:
    """Its value, weighed before it is read."""
    bare = digits.lstrip("0") or "0"
    if len(bare) >= len(str(LARGEST)):
        raise ExpressionError(f"a number of {len(bare)} digits; below {LARGEST} is kept")
    return int(bare)


def _before(waiting: list[str], rank: int) -> list[str]:
    """Take the signs that bind as tightly as `rank` or tighter, back to the last open bracket."""
    ready: list[str] = []
    while waiting and waiting[-1] != "(" and _RANK[waiting[-1]] >= rank:
        ready.append(waiting.pop())
    return ready


def _close(waiting: list[str], text: str) -> list[str]:
    """Take the signs of a bracket that ends, and the bracket."""
    ready = _before(waiting, 1)
    if not waiting:
        raise ExpressionError(f"a ) that nothing opened in {text!r}")
    waiting.pop()
    return ready
