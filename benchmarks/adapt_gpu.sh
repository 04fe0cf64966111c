#!/usr/bin/env bash
# What does reading a task's own texts give the box? MR and TREC, all rows and 500, three seeds, adapted and not.
#   benchmarks/adapt_gpu.sh DATA OUT [MODEL]
# DATA holds the unpacked mr and trec. OUT/adapt.json has a row for each seed (benchmarks/box_rows.py).
set -u
data=$1 out=$2 model=${3:-box}
more=${BOX_MORE:-} pretrain=${BOX_PRETRAIN:---steps 1000 --batch-size 128 --precision bf16}
tune=${BOX_TUNE:---precision bf16} python=${PYTHON:-python} work=${BOX_WORK:-$out/work}
mkdir -p "$out" "$work"
export OMP_NUM_THREADS=1 BERMO_CACHE=$work/cache

tuned() { # name, encoder, task, options
  local name=$1 encoder=$2 task=$3; shift 3
  $python -m bermo train --model "$encoder" --train "$data/$task/train.tsv" --valid "$data/$task/$(last "$task").tsv" \
    --seeds 1,2,3 --together 3 --checkpoint-minutes 100 --keep none $tune $more "$@" --out "$work/$name" \
    > "$out/$name.log" 2>&1
}
last() { [ -f "$data/$1/dev.tsv" ] && echo dev || echo test; }

both() { # task
  tuned "plain-$1" "$model" "$1" & tuned "plain-$1.500" "$model" "$1" --limit 500 &
  $python -m bermo pretrain --model "$model" --text "$data/$1/train.tsv" --lr 3e-4 --masking word --held-out 0.02 \
    --length 64 --looks 5 --checkpoint-minutes 100 $pretrain $more --out "$work/text-$1" > "$out/text-$1.log" 2>&1
  tuned "adapted-$1" "$work/text-$1/model" "$1" & tuned "adapted-$1.500" "$work/text-$1/model" "$1" --limit 500 &
  wait
}
both mr & both trec &
wait
$python benchmarks/box_rows.py "$work" "$out/adapt.json"
