"""gsm8k: grade-school word problems in several steps, one final number each. Exact match: 1 or 0.

On the Hub `openai/gsm8k` (configuration `main`, MIT licence): 7,473 problems in train, 1,319 in test. A row:

    question  Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes of babysitting. How
              much did she earn?
    answer    Weng earns 12/60 = $<<12/60=0.2>>0.2 per minute.
              Working 50 minutes, she earned 0.2 x 50 = $<<0.2*50=10>>10.
              #### 10
"""

from cory_env.tasks._word_problem import Problems

SHOT = """\
Question: A baker fills 4 trays with 12 rolls each. She sells 30 rolls and packs the rest in bags of 6. \
How many bags does she need?
Answer: The baker fills 4 * 12 = 48 rolls in all.
After the sale 48 - 30 = 18 rolls are left.
She needs 18 / 6 = 3 bags.
#### 3

"""
"""Worked example of the prompt, written for this task and in no data set."""


class Task(Problems):
    """GSM8K, with a worked example before the question; `#### n` ends a solution."""

    hub = "openai/gsm8k"
    config = "main"
    shot = SHOT
