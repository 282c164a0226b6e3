#!/bin/sh
# Make .venv-trl and .venv-trl-grpo beside the project's own environment, for the baselines of TRL: 1.12 is the last
# release with a PPO, 1.16 the newest GRPO that was compared.
#   sh benchmarks/speed/baselines/setup.sh
#   .venv-trl/bin/python -m benchmarks.speed.baselines.trl_ppo < job.json
# torch is named first so that pip does not choose another build than the project's.
set -eu
cd "$(dirname "$0")/../../.."
make_environment() {
    "${PYTHON:-python3}" -m venv "$1"
    echo '*' > "$1/.gitignore"
    "$1/bin/python" -m pip install 'torch>=2.9,<2.14'
    "$1/bin/python" -m pip install "trl==$2"
}
make_environment .venv-trl 1.12.0
make_environment .venv-trl-grpo 1.16.0
