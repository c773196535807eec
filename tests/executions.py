"""In place of executing notebooks, which takes ten seconds each: what would have been executed."""


class Executions(list):
    """In place of execution: the (number, parameters) of each notebook; `outcomes` says which fail, or what they raise."""

    def __init__(self):
        self.outcomes = {}

    def __call__(self, path, run, parameters, in_place):
        number = path.name[:2]
        self.append((number, parameters))
        outcome = self.outcomes.get(number, True)
        if isinstance(outcome, type):
            raise outcome
        return outcome
