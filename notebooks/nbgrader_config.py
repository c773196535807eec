"""nbgrader's settings for a course, to copy into the course's folder: see docs/teaching.md."""

import logging
import os
import warnings

c = get_config()  # noqa: F821 (nbgrader defines it)
c.Execute.timeout = 600  # seconds per cell; the default of 30 would end a training
os.environ.setdefault("GRPO_RUNS_DIR", os.path.abspath("runs"))

# Warnings that nbgrader 0.9.6 prints for every submission, also for an untouched one. A check with hidden tests always has
# another checksum than its released form; a changed check is restored in any case.
logging.getLogger("AutogradeApp").addFilter(lambda record: "'checksum' for cell" not in record.getMessage())
warnings.filterwarnings("ignore", message="Object of type .* not in session")  # SQLAlchemy, about nbgrader's own tables
c.Execute.extra_arguments = ["--IPKernelApp.log_level=40"]  # ipykernel, about the transport from process to process
