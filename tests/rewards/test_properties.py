"""Numbers, which the suite reads itself, and of which there are more than a table holds: another
spelling never turns right into wrong, another answer never wrong into right.

ANSWER_EXAMPLES sets how many are tried (10,000 were, by hand); they are the same in every run.
"""

import os
from fractions import Fraction

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helpers.rewards.answers.kinds import same_answer

pick = st.sampled_from
FRAMES = ["{}", " {} ", "{}.", "\\boxed{{{}}}", "${}$"]
WIDE = str.maketrans("0123456789", "０１２３４５６７８９")


# --- An answer, its other spellings, and other answers --------------------------------------------


@st.composite
def numbers(draw):
    whole, below = draw(st.integers(1, 10**6)), draw(st.integers(2, 30))
    shape = draw(pick(["whole", "decimal", "fraction"]))
    if shape == "whole":
        value = Fraction(whole)
        right = [f"{whole}", f"{whole:,}", f"{whole}.0", f"{whole}".translate(WIDE)]
        right += [f"{2 * whole}/2", f"\\frac{{{3 * whole}}}{{3}}", f"{whole}e0"]
    elif shape == "decimal":
        value = Fraction(whole, 1000)
        right = [f"{whole / 1000:.3f}", f"{whole / 1000:.4f}", f"{whole / 1000:,.3f}"]
        right += [f"{whole / 10:.1f}%", f"{whole / 10**6:.6f} × 10^3"]
        right += [f"\\frac{{{value.numerator}}}{{{value.denominator}}}"]
    else:
        value = Fraction(whole % 200 + 1, below)
        assume(value.denominator > 1)
        above, below = value.numerator, value.denominator
        right = [f"{above}/{below}", f"\\dfrac{{{above}}}{{{below}}}", f"{above}⁄{below}"]
        if above > below:
            right.append(f"{above // below} {above % below}/{below}")
    sign, other_sign = draw(pick([("", "-"), ("-", "")]))
    gold, digits = sign + right[0], str(value.numerator)
    at = draw(st.integers(0, len(digits) - 1))
    changed = Fraction(
        int(digits[:at] + draw(pick("0123456789")) + digits[at + 1 :]), value.denominator
    )
    assume(changed != value)
    near, exact = f"{sign}{changed}", f"{sign}{value}"
    more = ["0", " dozen", " million", " lakhs", " pi", "x", " squared", "!", " or so", "%1"]
    wrong = [near] * 6 + [f"{other_sign}{value}", f"{exact} and 1/2", f"{exact} + 1 - 1"]
    wrong += [f"{exact}{behind}" for behind in more]
    wrong += [f"{gold} or {near}", f"{gold}, {near}", f"2 * {value / 2}", f"not {gold}", "", "nan"]
    minus = draw(pick(["-", "−", "- "])) if sign else ""
    frame = draw(pick(FRAMES))
    return gold, [frame.format(minus + text) for text in right], wrong


# --- The test -------------------------------------------------------------------------------------


@settings(
    max_examples=int(os.environ.get("ANSWER_EXAMPLES", "150")),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(numbers(), st.data())
def test_another_spelling_stays_right_and_another_answer_wrong(case, data):
    gold, right, wrong = case
    assert same_answer(data.draw(pick(right)), gold, kind="number")
    assert not same_answer(data.draw(pick(wrong)), gold, kind="number")
