#!/usr/bin/env bash
# The atlas of an encoder on SST-2 or another task with three seeds: trained on a GPU, measured on two CPU cores.
#
#   benchmarks/atlas.sh ENCODER DATA OUT train   [options]   the trainings, WORKERS (6) at a time on the GPU
#   benchmarks/atlas.sh ENCODER DATA OUT export  [options]   what is deleted and exported, side by side, and the scores
#   benchmarks/atlas.sh ENCODER DATA OUT measure [options]   all that is left, above all the bench: CORES (0,1) alone
#
# ENCODER is a folder (gte-small), DATA one with the files of TASK (sst2). Options go to bermo atlas: --seeds 1 and later
# --seeds 3 goes on; --methods all adds the others; --limit 20000 and --epochs 3 are the same in all stages. Each stage
# goes on where it stopped. atlas.json, front.svg and page.html in OUT are the result.
set -e -o pipefail
encoder=$1 data=$2 out=$3 stage=$4
shift 4
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH=$root
common=(--model "$encoder" --task "${TASK:-sst2}" --data "$data" --mix none --epochs 3 --precision bf16 --seeds 3 --out "$out")
side=(--on local --workers "${WORKERS:-6}")
case $stage in
train) $python -m bermo atlas "${common[@]}" --only train "${side[@]}" "$@" ;;
export) $python -m bermo atlas "${common[@]}" --only export "${side[@]}" "$@" ;;
measure) CUDA_VISIBLE_DEVICES="" taskset -c "${CORES:-0,1}" $python -m bermo atlas "${common[@]}" --threads 2 "$@" ;;
*) echo "train, export or measure, but got $stage" >&2 && exit 2 ;;
esac
