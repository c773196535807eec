"""The command line, `python -m helpers COMMAND`.

Each command is a module of `helpers/commands/`. Only the module of the given command is imported,
so that `doctor` and `install` run before any package is installed.
"""

import argparse
import importlib
import platform
import sys

COMMANDS = {
    "run": "execute the notebooks with papermill, into runs/NAME/",
    "train": "train as notebook 03 does, as a script for several GPUs",
    "doctor": "describe this machine, and what is installed or missing on it",
    "install": "install what this machine needs into this interpreter",
    "sweep": "train a grid of settings and seeds, and make a table with intervals",
    "diagnose": "say what is wrong with a training run, from its log alone",
    "compare": "compare trained runs: settings that differ, accuracies and curves",
    "plan": "say how many held-out questions and seeds show a gain, and what they cost",
    "regrade": "judge a run's stored completions again with other rewards",
    "check-rewards": "attack a list of rewards on rows of data: go or no go, without a model",
    "generate": "answer a file of questions with a run's merged model",
    "evaluate": "measure one or two models on a file of questions, with intervals",
    "report": "write one HTML page about a run, to send to a colleague",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    A ValueError, an OSError or a missing package is printed as one message, without a traceback.
    """
    if sys.version_info < (3, 11):  # before a module that needs 3.11 is imported
        print(
            f"error: Python {platform.python_version()} is too old: 3.11 or newer is needed. Use "
            "another Python, such as `python3.12`, in its own virtual environment; "
            "`PYTHON=python3.12 ./install.sh` makes one.",
            file=sys.stderr,
        )
        return 2
    try:
        parsed = parse(sys.argv[1:] if arguments is None else arguments)
        return parsed.command(parsed)
    except ModuleNotFoundError as error:
        print(
            f"error: {error.name} is not installed. `python -m helpers install` installs the "
            "suite, and `python -m tools.optional` the packages that no notebook needs.",
            file=sys.stderr,
        )
        return 2
    except (ValueError, OSError) as error:
        from helpers.printing import escaped

        print(f"error: {escaped(str(error))}", file=sys.stderr)  # it may quote a completion
        return 2
    except KeyboardInterrupt:
        return 130  # the shell's code for Ctrl-C; the command has said how to continue


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed arguments; their `command` is the function to call with them."""
    parser = argparse.ArgumentParser(
        prog="python -m helpers", description="Run the GRPO notebooks and look after the machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        if arguments[:1] == [name]:
            module = importlib.import_module(f"helpers.commands.{name.replace('-', '_')}")
            module.add_arguments(command)
            command.set_defaults(command=module.main)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
