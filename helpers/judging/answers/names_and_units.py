r"""What a number may have around it: a name before it and a unit behind it. Also the names of
LaTeX's Greek letters and functions.

- A name may be a letter, `f(x)`, an angle, a segment, a derivative, or up to four words. An
  expression, and a word that says something else of the value, is none:
  `\angle A = 30^\circ` = `30`, `total = 72` = `72`, `2x = 3` ≠ `3`, `half = 36` ≠ `36`
- Words that change the number are not units:
  `5 km` = `5`, `72 more apples` = `72`, `72 more dozens` ≠ `72`, `42 squared` ≠ `42`
"""

import re

# --- Names before a value -------------------------------------------------------------------------

# Greek letters, without the backslash.
GREEK = (
    "(?:(?:var)?(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|phi|omega|eta|kappa|nu|xi"
    "|tau|chi|psi|zeta|Delta|Omega|Gamma|Theta|Lambda|Sigma|Phi|Psi))"
)
# Functions that may be typed without a backslash: `sin x`.
FUNCTIONS = r"sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|pi"

# A letter with marks and an index: `x`, `f'`, `S_{MBCN}`, `\theta`, `\bar{x}`.
_BARE_LETTER = rf"(?:\\{GREEK}|\\(?:bar|hat|vec|mathbf|mathcal)\{{?\w\}}?|[a-zA-Z])"
_LETTER = rf"{_BARE_LETTER}'*(?:_(?:\w|\{{[^{{}}]*\}}))?'*"
# Points, angles and triangles: `AB`, `|AB|`, `\angle ABC`, `[ABC]`.
_FIGURE = r"m?(?:\\(?:angle|triangle|bar|vec)\{?\s*)?[|\[]?[A-Z]{1,5}[|\]]?\}?"
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
# Words that say something else of the value than its name: `half = 36` is not about 36.
_CHANGES_VALUE = (
    rf"(?:{FUNCTIONS})[xyz]?|sinh|cosh|tanh|sqrt|not?|never|nor|half|twice|thrice"
    "|double|triple|squared?|cubed?|root|inverse|reciprocal|negative|minus|plus|opposite|times|over"
    "|mod|or|and|if|wrong|less|more|under|above|below|maybe|about|error|false|incorrect"
)
# Up to four words, none of which changes the value: `total`, `The total cost`.
_WORDS = rf"(?![^=≈]*\b(?:{_CHANGES_VALUE})\b)[a-z]{{3,}}(?:\s[a-z]+){{0,3}}"
# `total =`, `\text{Area} =`
NAME_IN_WORDS = re.compile(
    rf"^\s*(?:\\(?:text|mathrm)\{{\s*)?(?i:{_WORDS})\s*\}}?\s*(?:=|≈|\\approx)\s?(?=[^=≈]*$)"
)

# --- Units ----------------------------------------------------------------------------------------

# Symbols. The single letters k, M and B are missing, because they multiply, and so is ppm.
_SYMBOL = "|".join(
    [
        "[kcmµμn]?m|k?g|mg|[mcd]?[lL]|lb|oz|ft|in|yd|mi",  # lengths, masses, volumes: km, kg
        r"mins?|hrs?|secs?|yrs?|ms|(?<=/)[sh]",  # times; s and h only after a slash: km/h
        "mol|[kM]?Wh|[kMG]?Hz|[kMGmµμ]?[NJWVA]|m?Ah|[kMGh]?Pa|[mk]ph|°[CF]?|k?Ω|¢",  # kWh, °C
        "[kMGT]?bps|(?i:[kmgt]i?b)|[rb]pm|fps|[dp]pi",  # kbps, GB, rpm
        "psi|atm|m?bar|mmHg|k?cal|[kMG]?eV|dB|px|pts?|gal|tb?sp|ha|rad",
    ]
)
# Words: meters, hours, people.
_UNIT_WORD = (
    "(?i:(?:centi|milli|kilo)?(?:meter|metre|gram|liter|litre)|inch|foot|feet|yard|mile|ounce|pound"
    "|gallon|newton|joule|watt|volt|second|minute|hour|day|week|month|year|degree|cent|people|person"
    "|children)"
)
# Plurals that are no units: they change the number, such as dozens or tenths, or are other words
# with an s at the end, such as always.
_NO_UNITS = (
    "halves|halfs|quarters|dozens|pairs|couples|scores|roots|percent(?:age)?s|times|does"
    "|always|perhaps|logs|hundreds|lakhs|googols|grosses|factorials|doubles|triples|ones|twos"
    "|threes|fours|fives|sixes|sevens|eights|nines|tens|myriads|squares|cubes|powers|negatives"
    "|opposites|inverses|reciprocals|remainders|modulos|[a-z]*(?:th|third|illion|illiard)s"
)
# Plurals of counted things: apples. Not words such as less, plus or this.
_COUNTED = rf"(?!(?:{_NO_UNITS})\b)[a-z]{{2,}}[^aisu\W]s"
# A Chinese, Japanese or Korean counter of up to six characters, such as 只. None of them means a
# power of ten, a half, an arithmetic operation, a comparison or a negation.
_COUNTER = (
    "(?:(?![零十百千万萬億亿兆京半倍割折成以上下左右余多约約或不非之만억조천백십반])"
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]){1,6}"
)
# One unit: km, square feet, m^2, m3.
_ONE_UNIT = (
    rf"(?:(?:sq\.?|square|cubic)\s+)?(?:{_SYMBOL}|{_UNIT_WORD}s?|{_COUNTED}|{_COUNTER})"
    r"(?:\s*\^-?\d|(?<=m)[23])?(?![\w^])"
)
# Up to five units: km/h, eggs a day, per hour.
_NEXT_UNIT = rf"(?:\s*[/*·]\s*|\s+(?:(?:per|an?)\s+)?){_ONE_UNIT}"
UNIT = re.compile(rf"(?:/\s*|per\s+)?{_ONE_UNIT}(?:{_NEXT_UNIT}){{0,4}}")
# Words around a unit that leave the number as it is: more eggs, years old, $5 each, 72 left.
AROUND_UNIT = re.compile(
    r"^more\s+(?=\w)"
    r"|(?:(?:^|\s+)(?:old|tall|long|wide|high|deep|away|left|remaining|each|total|altogether"
    r"|in\s(?:total|all)))+$"
)
