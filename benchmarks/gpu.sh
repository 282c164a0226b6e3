#!/bin/sh
# The first half hour on a GPU: each part takes less than nine minutes, one process at a time.
#
#     sh benchmarks/gpu.sh                     # every part, results in runs/gpu
#     sh benchmarks/gpu.sh tests throughput    # some of: tests throughput large pretrain learn
#     sh benchmarks/gpu.sh --dry               # every part on the CPU in tiny shapes, in three minutes
#
# PYTHON is the interpreter, OUT the folder of the results, DATA the parquet file of unlabelled reviews that `pretrain`
# reads. A part that fails is named at the end, and the next one runs. JSON files hold device, versions and commit.
set -u

PYTHON=${PYTHON:-python}
OUT=${OUT:-runs/gpu}
DATA=${DATA:-../shared/data/imdb/unsup.parquet}
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
    CORY_TEST_DEVICE=$DEVICE $PYTHON -m pytest -q -m gpu tests/gpu $(dry tests/cory/policies "-n 2") --junit-xml "$OUT/tests.xml"
)

# Seconds, tokens a second and memory of an iteration beside the plain Hugging Face way, and the estimate of memory.
throughput() {
    $PYTHON -m benchmarks.speed.throughput $(dry "gpt2 gpt2-large" tiny) --device $DEVICE --rounds $(dry 3 1) \
        --json "$OUT/throughput.json"
}

# A LoRA team on a model of 7 billion random weights.
large() {
    $PYTHON -m benchmarks.speed.throughput $(dry llama-7b tiny-llama) --device $DEVICE --rounds 1 --json "$OUT/large.json"
}

# A model of GPT-2's smallest shape, pretrained on reviews.
pretrain() {
    if [ -n "$DRY" ]; then
        DATA=$OUT/reviews.parquet
        $PYTHON -c "import pandas, sys
pandas.DataFrame({'text': [f'a film of {n} parts ' * 20 for n in range(99)], 'label': -1}).to_parquet(sys.argv[1])" "$DATA"
    fi
    if [ ! -f "$DATA" ]; then
        echo "pretrain: there is no $DATA; set DATA"
        return 1
    fi
    $PYTHON -m examples.pocket_models.pretrain --data "$DATA" --work "$OUT/pretrain" --out "$OUT/lm" --device $DEVICE \
        $(dry "--layers 12 --width 768 --heads 12 --rows 128 --steps 2400" "--layers 1 --width 32 --heads 2 --rows 2 --steps 2") \
        $(dry --compiled --no-compiled)
}

# PPO, CORY and CORY with own scores from that model, two seeds.
learn() {
    model=$(dry "$OUT/lm" pocket)
    for seed in $(dry "0 1" 0); do
        for arm in $(dry "ppo cory independent" "ppo cory"); do
            case $arm in
                ppo) changed="--seats 1 --exchange.every 0" ;;
                cory) changed= ;;
                independent) changed="--payoff independent" ;;
            esac
            $PYTHON -m cory.cli train --run "$OUT/learn/$arm-$seed" --resume auto --seed "$seed" $changed \
                --policy.model "$model" --policy.device $DEVICE --batch $(dry 256 8) --iterations $(dry 100 1) \
                --evaluation.queries $(dry 512 8) --evaluation.every $(dry 20 0) || return 1
        done
    done
    rm -rf "$OUT"/learn/*/checkpoints "$OUT"/learn/*/policies "$OUT"/learn/*/tensorboard # what comes back is small
}

mkdir -p "$OUT"
for part in ${*:-tests throughput large pretrain learn}; do
    case $part in
        tests | throughput | large | pretrain | learn) ;;
        *)
            echo "gpu.sh: there is no part $part; there are tests throughput large pretrain learn" >&2
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
