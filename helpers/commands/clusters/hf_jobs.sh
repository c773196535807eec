#!/bin/bash
# A sweep as Jobs on Hugging Face, a run each; the runs lie in a bucket of yours, in which a Job that is given again goes on.
# In the checkout, after `hf auth login` and `hf buckets create grpo-runs`:
#
#   python -m helpers sweep --grid GRID --emit commands > points.txt
#   REPOSITORY=https://… NAMESPACE=you bash helpers/commands/clusters/hf_jobs.sh points.txt
#
# and at the end `hf buckets sync hf://buckets/you/grpo-runs runs` and `sweep --grid GRID --collect`.
set -euo pipefail

while read -r line; do
  hf jobs run --detach --flavor "${FLAVOR:-l4x1}" --timeout 4h \
    --env GRPO_RUNS_DIR=/runs --volume "hf://buckets/${NAMESPACE:?who owns the bucket}/grpo-runs:/runs" \
    python:3.11 bash -c "git clone --depth 1 ${REPOSITORY:?where the checkout comes from} /suite && cd /suite && \
python -m helpers install && exec ${line}" < /dev/null
done < "${1:?name the file with the lines}"
