"""The table of the settings in docs/settings.md: `python -m tools.settings` prints it."""

import argparse

from helpers.settings import SETTINGS, possible_values


def table() -> str:
    """Return the settings in Markdown, a row each, and below them what receives those that
    GRPOConfig does not receive under the same name.
    """
    lines = ["| setting | default | may be | what it does |", "|---|---|---|---|"]
    receivers: dict[str, list[str]] = {}
    for name, setting in SETTINGS.items():
        said = setting.metadata
        lines.append(
            f"| `{name}` | `{setting.default}` | {possible_values(setting)} | {said['does']} |"
        )
        receivers.setdefault(said["to"], []).append(f"`{name}`")
    del receivers["GRPOConfig"]
    lines += ["", "TRL's `GRPOConfig` receives these settings under their own names, except:", ""]
    for receiver, names in receivers.items():
        called = f"`{receiver}`" if receiver else "no function of a library"
        lines.append(f"- passed to {called}: {', '.join(names)}")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    print(table())
