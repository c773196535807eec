"""The table of the settings in docs/settings.md: `python -m tools.settings` prints it."""

import argparse

from helpers.settings import SETTINGS, possible_values


def table() -> str:
    """Return the settings in Markdown, a row each."""
    lines = [
        "| setting | default | may be | what it does | passed to | parameter of |",
        "|---|---|---|---|---|---|",
    ]
    for name, setting in SETTINGS.items():
        said = setting.metadata
        lines.append(
            f"| `{name}` | `{setting.default}` | {possible_values(setting)} | {said['does']} | "
            f"{said['to']} | {', '.join(said['of'])} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    print(table())
