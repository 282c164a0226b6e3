#!/bin/sh
# The first half hour on a GPU: a minute or two of tests, three parts of some nine. `make smollm2` first.
#
#     sh benchmarks/gpu.sh                     # every part, results in runs/gpu
#     sh benchmarks/gpu.sh tests throughput    # some of: tests throughput large learn
#     sh benchmarks/gpu.sh --dry               # every part on the CPU in tiny shapes, in three minutes
#
# PYTHON is the interpreter, OUT the folder of the results. A part that fails is named at the end, and the next one
# runs. JSON files hold device, versions and commit.
set -u

PYTHON=${PYTHON:-python}
OUT=${OUT:-runs/gpu}
DEVICE=cuda DRY=
if [ "${1:-}" = --dry ]; then
    DEVICE=cpu DRY=yes
    shift
fi
FAILED=

# dry A B: A on a GPU, B in a rehearsal
dry() { if [ -n "$DRY" ]; then echo "$2"; else echo "$1"; fi; }

# Parity with the CPU, resume, waits while decoding, memory that runs out, the pocket run.
tests() (
    [ -z "$DRY" ] || export OMP_NUM_THREADS=1 # two processes on two cores
    CORY_TEST_DEVICE=$DEVICE $PYTHON -m pytest -q -m gpu tests/gpu tests/cory/policies $(dry "" "-n 2") \
        --junit-xml "$OUT/tests.xml"
)

# Seconds, tokens a second and memory of an iteration beside the plain Hugging Face way, and the estimate of memory.
throughput() {
    $PYTHON -m benchmarks.speed.throughput $(dry "smollm2 gpt2-large" tiny) --device $DEVICE --rounds $(dry 3 1) \
        --json "$OUT/throughput.json"
}

# A LoRA team on a model of 7 billion random weights.
large() {
    $PYTHON -m benchmarks.speed.throughput $(dry llama-7b tiny-llama) --device $DEVICE --rounds 1 --json "$OUT/large.json"
}

# SmolLM2 at the paper's batch: a study, whose finished runs stand.
learn() {
    $PYTHON -m cory.cli study --out "$OUT/learn" \
        $(dry "benchmarks/studies/smollm2_batch.yaml --jobs 5" "--arms ppo,grpo --quick --jobs 2")
}

mkdir -p "$OUT"
for part in ${*:-tests throughput large learn}; do
    case $part in
        tests | throughput | large | learn) ;;
        *)
            echo "gpu.sh: there is no part $part; there are tests throughput large learn" >&2
            exit 2
            ;;
    esac
    start=$(date +%s)
    if ! $part >"$OUT/$part.log" 2>&1; then
        FAILED="$FAILED $part"
        tail -n 20 "$OUT/$part.log"
    fi
    echo "$part: $(($(date +%s) - start)) s, log $OUT/$part.log"
done
if [ -n "$FAILED" ]; then
    echo "failed:$FAILED"
    exit 1
fi
