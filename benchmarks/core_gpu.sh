#!/usr/bin/env bash
# The core's numbers on one GPU: SST-2 (3 seeds), SQuAD 1.1 and CoNLL-2003 (3 seeds), plain and mixed, all
# side by side.
#   benchmarks/core_gpu.sh MODEL DATA OUT
# MODEL: a folder with a real encoder (gte-small); DATA: a folder with sst2/, squad/ and conll2003/; OUT: runs
# go there, and going on after a stop is the same command. Every process is one arm and one seed, since a
# small encoder leaves most of a GPU idle.
set -u
model=$1 data=$2 out=$3
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=true
mkdir -p "$out"
# Arguments: recipe, task, arm, seeds.
start() {
  python -m bermo run "$1" "model.backbone=$model" "data.folder=$data/$2" train.checkpoint_minutes=1.5 --arms "$3" --seeds "$4" \
    --out "$out/$1-$4" > "$out/$1-$3-$4.log" 2>&1 &
}
for arm in plain mix; do start squad squad "$arm" 9,; done
for arm in plain mix; do for seed in 9 25 39; do start sst2 sst2 "$arm" "$seed,"; done; done
for arm in plain mix; do start conll2003 conll2003 "$arm" 9,25,39; done
wait
tail -qn 3 "$out"/*.log
