"""The old name of `helpers.agents`, for environments that were written before it was renamed."""

import sys

from helpers.agents import *  # noqa: F403
from helpers.agents import episodes, protocol

sys.modules |= {f"{__name__}.episodes": episodes, f"{__name__}.protocol": protocol}
