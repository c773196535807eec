"""Does cheating pay? Rewards and environments are attacked before they train anything.

In: rewards with their weights and rows of data, or an environment. Out: from `measures.Lab`, what
honest answers and `attacks` earn, and a verdict, go or no go, with its reasons; from
`environments.attack`, the same for an environment and its `players`. Used by notebooks 02, 03,
07 and 10, and by the command `check-rewards`. README.md says how to use it from a script.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "plots": "",
        "approval": "against_report",
        "attack_templates": "WRONG Attack honest",
        "attacks": "BATTERY",
        "cases": "stored_groups style_cases",
        "environments": "attack_environment=attack",
        "measures": "Lab",
    },
)
