"""The table of the settings in docs/settings.md: `python -m tools.settings` prints it."""

import argparse

from helpers.settings import SETTINGS, possible_values


def table() -> str:
    """Return the settings in Markdown, a row each, and below them those that notebook 03 reads from
    the run.
    """
    lines = ["| setting | default | may be | what it does |", "|---|---|---|---|"]
    of_the_run = []  # settings that notebook 03 does not have as parameters
    for name, setting in SETTINGS.items():
        said = setting.metadata
        lines.append(
            f"| `{name}` | `{setting.default}` | {possible_values(setting)} | {said['does']} |"
        )
        if "01" in said["of"] and "03" not in said["of"]:
            of_the_run.append(f"`{name}`")
    lines += [
        "",
        "Notebook 01 stores these settings with the data, and notebook 03 reads them from "
        f"there; it ignores them as parameters: {', '.join(of_the_run)}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    print(table())
