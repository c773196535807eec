"""Is it correct? Judges answers and programs; it imports nothing else of this project.

In: texts that a policy wrote, beside the row's answer or the row's tests. Out: correct or wrong
from `answers`, the outcomes of programs in a sandbox from `programs`; `workers` are processes that
can be killed. Used by notebook 09, and by every stage but `metrics` and `agents`. README.md says
how to use it alone, what it covers and what it does not.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "answers": "KINDS check_kind",
        "answers.kinds": "are_right compare_answers kind_of",
        "answers.numbers": "parse_number",
        "answers.survey": "survey",
        "programs.sandbox": "Job Limits run_code",
        "programs.unit_tests": "read_tests",
    },
)
