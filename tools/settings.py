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
    lines += [
        "",
        "TRL's `GRPOConfig` receives them under their own names, with these exceptions:",
        "",
    ]
    for receiver, names in receivers.items():
        call, _, keyword = receiver.partition(".")
        if not call:
            how = "not passed to any library function"
        elif keyword:
            how = f"passed to `{call}` as `{keyword}`"
        else:
            how = f"passed to `{call}`"
        lines.append(f"- {', '.join(names)}: {how}")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    print(table())
