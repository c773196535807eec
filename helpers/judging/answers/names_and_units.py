r"""What a number may have around it: a name before it and a unit behind it. Also the names of
LaTeX's Greek letters and functions.

- A name may be a letter, `f(x)`, an angle, a segment, a derivative, or up to four words. An
  expression, and a word that says something else of the value, is none:
  `\angle A = 30^\circ` = `30`, `total = 72` = `72`, `2x = 3` ≠ `3`, `half = 36` ≠ `36`
- Words that change the number are not units:
  `5 km` = `5`, `72 more apples` = `72`, `72 more dozens` ≠ `72`, `42 squared` ≠ `42`

Who uses the patterns, and how:

- `NAME`: `numbers` removes a name with the equals sign after it; `mathematics` accepts a left side
  of an equation as a name only if it matches as a whole.
- `NAME_IN_WORDS`: `numbers` and `mathematics` remove it, with the equals sign, from an answer.
- `AROUND_UNIT`: `numbers` removes these words from those after a number.
- `UNIT`: `numbers` accepts what is left of these words only if it matches as a whole; `mathematics`
  removes a unit inside a `\text{}` at the end of an answer.
- `GREEK`, `FUNCTIONS`: `mathematics` and `latex` put them, as text, into patterns of their own.
"""

import re


def any_of(words: str) -> str:
    """Return a pattern that matches each of these words, which may be patterns.

    >>> any_of("sin cos")
    '(?:sin|cos)'
    """
    return f"(?:{'|'.join(words.split())})"


# --- Names before a value -------------------------------------------------------------------------

# The names of Greek letters, without a backslash.
GREEK = "(?:var)?" + any_of(
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi"
    " omega Gamma Delta Theta Lambda Sigma Phi Psi Omega"
)
# Functions that may be typed without a backslash: sin x.
FUNCTIONS = any_of("sin cos tan cot sec csc log ln exp arcsin arccos arctan pi")

# x, \theta, \bar{x}
_BARE_LETTER = rf"(?:[a-zA-Z]|\\{GREEK}|\\{any_of('bar hat vec mathbf mathcal')}\{{?\w\}}?)"
# f', S_{MBCN}
_LETTER = rf"{_BARE_LETTER}'*(?:_(?:\w|\{{[^{{}}]*\}}))?'*"
# Points, angles and triangles: AB, |AB|, [ABC], \angle ABC, m\angle{ABC}.
_FIGURE = rf"m?(?:\\{any_of('angle triangle bar vec')}\{{?\s*)?[|\[]?[A-Z]{{1,5}}[|\]]?\}}?"
# What a given answer may have before its value.
NAME = re.compile(
    "|".join(
        [
            rf"{_LETTER}(?:\([\w,]+\))?",  # x, f(x)
            rf"\({_LETTER}(?:,{_LETTER})*\)",  # (p,q)
            _FIGURE,  # AB
            rf"(?:{_LETTER}|{_FIGURE})(?::(?:{_LETTER}|{_FIGURE}))+",  # V_1:V_2
            r"\\frac\{d[a-z]\}\{d[a-z]\}|d[a-z]/d[a-z]",  # \frac{dy}{dx}, dy/dx
        ]
    )
)

# Words that say something else of the value than its name: half = 36 is not about 36.
_CHANGES_VALUE = any_of(
    f"{FUNCTIONS}[xyz]? sinh cosh tanh sqrt root square squared cube cubed inverse reciprocal"
    " half twice thrice double triple plus minus times over mod negative opposite"
    " no not never nor or and if less more under above below maybe about"
    " wrong error false incorrect"
)
# Up to four words, none of which changes the value: total, The total cost.
_WORDS = rf"(?![^=≈]*\b{_CHANGES_VALUE}\b)[a-z]{{3,}}(?:\s[a-z]+){{0,3}}"
# The words with their sign: total =, \text{Area} =
NAME_IN_WORDS = re.compile(
    rf"^\s*(?:\\(?:text|mathrm)\{{\s*)?(?i:{_WORDS})\s*\}}?\s*(?:=|≈|\\approx)\s?(?=[^=≈]*$)"
)

# --- Units ----------------------------------------------------------------------------------------

# Symbols. The single letters k, M and B are missing, because they multiply, and so is ppm.
_SYMBOL = any_of(
    # lengths, areas, masses, volumes
    "m km cm mm µm μm nm in ft yd mi ha g kg mg lb oz l L ml mL cl cL dl dL gal tsp tbsp"
    # times and speeds; s and h only after a slash: km/h
    " ms sec secs min mins hr hrs yr yrs (?<=/)[sh] mph kph rpm bpm fps"
    # newtons, joules, watts, volts and amperes: kN, µA
    " [kMGmµμ]?[NJWVA] Wh kWh MWh Ah mAh eV keV MeV GeV cal kcal Ω kΩ"
    # other quantities
    " Hz kHz MHz GHz Pa kPa MPa GPa hPa psi atm bar mbar mmHg ° °C °F rad mol dB"
    # data, print and money; KB and Mib in any case
    " bps kbps Mbps Gbps Tbps (?i:[kmgt]i?b) px pt pts dpi ppi ¢"
)
# Words, which may have an s at their end: meters, hours, people.
_UNIT_WORD = "(?i:(?:centi|milli|kilo)?{}|{})".format(
    any_of("meter metre gram liter litre"),
    any_of(
        "inch foot feet yard mile ounce pound gallon newton joule watt volt second minute hour day"
        " week month year degree cent people person children"
    ),
)
# Words with an s at their end that are no units, because they change the number or are no plurals.
_NO_UNITS = any_of(
    "halves halfs quarters [a-z]*(?:th|third)s percents percentages ones twos threes fours fives"
    " sixes sevens eights nines tens pairs couples dozens scores grosses hundreds lakhs myriads"
    " [a-z]*(?:illion|illiard)s googols doubles triples times squares cubes powers roots logs"
    " factorials negatives opposites inverses reciprocals remainders modulos does always perhaps"
)
# Plurals of counted things: apples. Not words such as less, plus or this.
_COUNTED = rf"(?!{_NO_UNITS}\b)[a-z]{{2,}}[^aisu\W]s"
# A Chinese, Japanese or Korean counter of up to six characters, such as 只. None of them means a
# power of ten, a half or another share, a comparison, `or` or `not`.
_COUNTER = (
    "(?:(?![零十百千万萬億亿兆京만억조천백십半반倍割折成以上下左右余多約约或不非之])"
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]){1,6}"
)
# One unit: km, square feet, m^2, m3.
_ONE_UNIT = (
    rf"(?:(?:sq\.?|square|cubic)\s+)?(?:{_SYMBOL}|{_UNIT_WORD}s?|{_COUNTED}|{_COUNTER})"
    r"(?:\s*\^-?\d|(?<=m)[23])?(?![\w^])"
)
# A unit after a unit: the h of km/h, the day of eggs a day.
_NEXT_UNIT = rf"(?:\s*[/*·]\s*|\s+(?:(?:per|an?)\s+)?){_ONE_UNIT}"
# Up to five units: km/h, eggs a day, per hour.
UNIT = re.compile(rf"(?:/\s*|per\s+)?{_ONE_UNIT}(?:{_NEXT_UNIT}){{0,4}}")
# Words around a unit that leave the number as it is: more eggs, years old, $5 each, 72 left.
_AFTER_UNIT = any_of(
    r"old tall long wide high deep away left remaining each total altogether in\s(?:total|all)"
)
AROUND_UNIT = re.compile(rf"^more\s+(?=\w)|(?:(?:^|\s+){_AFTER_UNIT})+$")
