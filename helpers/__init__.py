"""What the notebooks share. Importing this package imports nothing heavy: no torch, no pandas."""

from pathlib import Path

__version__ = "0.1.0"
PROJECT = Path(__file__).resolve().parent.parent  # the checkout: notebooks/, requirements.txt, runs/
