"""Whether notebook 03 trains with what notebook 02 tested and approved."""

from helpers.rewards.common import reward_name, source_hash
from helpers.runs import Run


def against_report(run: Run, functions: list, weights: list[float]) -> str:
    """Return a sentence or two: are these the rewards and weights of the run's
    `reward_report.json`, and was its verdict a go?

    Names, weights and `source_hash` are compared. Reports of earlier versions have no hash, so
    names and weights decide. Raise ValueError if the report is damaged.
    """
    report = run.read_object("reward_report.json")
    if not report:
        return (
            f"NOT TESTED: {run.show('reward_report.json')} is not there. Notebook 2 attacks the "
            "rewards, and writes it."
        )

    # 1. Are they the same rewards, with the same weights? TRL checks that there are as many weights
    # as functions.
    names = [reward_name(function) for function in functions]
    trained = dict(zip(names, weights, strict=False))
    tested = {name: entry["weight"] for name, entry in report["rewards"].items()}
    if trained != tested:
        listed = ", ".join(f"{name} x {weight:g}" for name, weight in tested.items())
        return (
            f"NOT WHAT NOTEBOOK 2 TESTED, which was {listed}. Its verdict says nothing about this "
            "training."
        )

    # 2. Is their source the same?
    sources = {reward_name(function): source_hash(function) for function in functions}
    changed = []
    for name, entry in report["rewards"].items():
        if "source" in entry and entry["source"] != sources[name]:
            changed.append(name)
    if changed:
        return (
            f"NOT WHAT NOTEBOOK 2 TESTED: the source of {', '.join(changed)} has changed since. "
            "This training uses it as it is now, and the verdict says nothing about that."
        )

    # 3. Were they approved?
    if not report["verdict"]["go"]:
        return (
            "NOT APPROVED: notebook 2 tested these rewards, and its verdict was NO GO: "
            + " ".join(report["verdict"]["stops"])
        )
    return "These are the rewards and weights that notebook 2 tested and approved."
