"""Tables and a command of docs/ against the code."""

import shlex

from helpers import PROJECT
from tools.settings import table


def test_docs_settings_has_the_current_table():
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert table() in page, "put what `python -m tools.settings` prints in its place"


def test_the_readme_shows_rows_of_docs_presets():
    rows = {}
    for page in ("docs/presets.md", "README.md"):
        text = (PROJECT / page).read_text(encoding="utf-8")
        table = [line.strip("| ").split(" | ") for line in text.splitlines() if "| `" in line]
        rows[page] = table
    peaks = {cells[0]: (cells[2], cells[-1]) for cells in rows["docs/presets.md"]}
    shown = [cells for cells in rows["README.md"] if cells[1] in peaks]
    assert len(shown) == 6
    for _, name, model, peak in shown:
        assert model.startswith(peaks[name][0]) and peak == peaks[name][1]


def test_the_command_of_docs_rewards_is_the_no_go_of_a_reward_for_steps(cli, monkeypatch):
    monkeypatch.chdir(PROJECT)
    page = (PROJECT / "docs" / "rewards.md").read_text(encoding="utf-8")
    command = page.partition("\n## Check rewards\n")[2].split("```")[1]
    arguments = shlex.split(command.removeprefix("bash\n").replace("\\\n", " "))
    assert arguments[:3] == ["python", "-m", "helpers"]
    code, out, _ = cli(*arguments[3:])
    assert code == 1 and "reasoning_steps_reward" in out.partition("NO GO")[2]
