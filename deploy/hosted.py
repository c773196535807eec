"""The rest of a notebook's first cell in Colab and Kaggle, which has cloned the project into
`grpo-notebooks`, and executes this file's text: install what is missing, and make the clone the
working directory.
"""

import os
import sys
from pathlib import Path

project = Path("grpo-notebooks").resolve()
sys.path.insert(0, str(project))
from helpers import environment  # noqa: E402  # found only from here on

environment.set_up_hosted()  # raises if the session must be restarted: then this cell runs again
os.chdir(project)
