"""Tables and a command of docs/ against the code."""

import functools
import json
import shlex

from helpers import PROJECT
from helpers.families import config_of
from helpers.presets import PRESETS
from helpers.training import memory, model_sizes
from helpers.training.memory import estimate
from tools.settings import table


def test_docs_settings_has_the_current_table():
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert table() in page, "put what `python -m tools.settings` prints in its place"


def test_docs_presets_shows_the_estimates(monkeypatch):
    # Count in this process, which has imported Transformers.
    count = functools.cache(lambda text: model_sizes.count(*json.loads(text)))
    monkeypatch.setattr(model_sizes, "_counted", count)
    page = (PROJECT / "docs" / "presets.md").read_text(encoding="utf-8")
    rows = [line.strip("|\n ").split(" | ") for line in page.splitlines() if "| `" in line]
    shown = {cells[0].strip("`"): (cells[2], cells[-1]) for cells in rows}
    for name, preset in PRESETS.items():
        if name == "smollm2":  # its package may be missing; see tests/test_smollm2.py
            continue
        card = preset.needs_gb * 1e9 if preset.needs_gb else None
        model, peak = shown[name]
        config, sees = config_of(preset.model_path), name.startswith("vision")
        assert peak == memory.size(estimate(preset, config, card, sees).peak)
        assert preset.model.split("/")[-1] in model or name == "pocket"


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
