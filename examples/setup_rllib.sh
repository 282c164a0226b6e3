#!/bin/sh
# Make .venv-rllib beside the project's own environment: RLlib pins one version of Gymnasium (1.2.2 in Ray 2.60).
#   sh examples/setup_rllib.sh
#   .venv-rllib/bin/python examples/rllib_exchange.py
# torch is named first so that pip does not choose another build than the project's.
set -eu
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv-rllib}
"${PYTHON:-python3}" -m venv "$VENV"
echo '*' > "$VENV/.gitignore"
"$VENV/bin/python" -m pip install 'torch>=2.9,<2.14'
"$VENV/bin/python" -m pip install 'ray[rllib]>=2.50' 'pettingzoo>=1.27' 'pytest>=8.4'
"$VENV/bin/python" -m pip install --no-deps --editable .
