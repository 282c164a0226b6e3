#!/bin/sh
# Make .venv-trl beside the project's own environment, for the baseline of TRL 1.12's PPO.
#   sh benchmarks/speed/baselines/setup.sh
#   .venv-trl/bin/python -m benchmarks.speed.baselines.trl_ppo < job.json
# torch is named first so that pip does not choose another build than the project's.
set -eu
cd "$(dirname "$0")/../../.."
VENV=${VENV:-.venv-trl}
"${PYTHON:-python3}" -m venv "$VENV"
echo '*' > "$VENV/.gitignore"
"$VENV/bin/python" -m pip install 'torch>=2.9,<2.14'
"$VENV/bin/python" -m pip install 'trl==1.12.0'
