"""The changes that tools/mutations.py makes in helpers/, and which tests it asks."""

import ast

from tools import mutations

SOURCE = '''"""Text: 1 < 2."""
LIMIT: "1" = 5


@cache(size=1)
def é(number: int, most=9) -> "1 + 1":
    """1 + 1"""
    if number > (  # < 3
        LIMIT
    ):
        raise ValueError(number + 1)
    if number and not most:
        print(number * 2, f"{number - 1}")
    try:
        first = [é for é in (number, -2) if é.real]
    except ValueError:
        return 1
    assert number == 3
    return "text" + "more" if (first) not  in [True] else first


if __name__ == "__main__":
    é(1)
'''
FOUND = [
    (2, "5", "6"),
    (6, "9", "10"),
    (12, "number and not most", "False and (number and not most)"),
    (12, "number and not most", "not (number and not most)"),
    (12, "and", "or"),
    (12, "not", ""),
    (15, "2", "3"),
    (15, "é.real", "not (é.real)"),
    (19, '"text" + "more" if (first) not  in [True] else first', "None"),
    (19, "not  in", "in"),
    (19, "True", "False"),
]


def sites(source=SOURCE, file="helpers/some.py"):
    return mutations.sites(file, source.encode())


def test_what_is_changed_and_what_only_refuses_or_explains():
    assert [(site.line, site.before, site.after) for site in sites()] == FOUND


def test_a_change_alters_its_bytes_alone_and_leaves_python():
    source = SOURCE.encode()
    for site in sites():
        text = mutations.changed(source, site)
        after = site.after.encode()
        assert text == source[: site.start] + after + source[site.end :] != source
        assert source[site.start : site.end].decode() == site.before
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
