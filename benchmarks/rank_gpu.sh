#!/usr/bin/env bash
# Movement pruning to 10 % on SST-2 by score and by size times score, three epochs, side by side on one GPU.
#   benchmarks/rank_gpu.sh MODEL DATA OUT
set -u
model=$1 data=$2 out=$3
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1
mkdir -p "$out"
run() { local name=$1; shift; python -m bermo run "$@" "model.backbone=$model" "data.folder=$data/sst2" train.checkpoint_minutes=100 --seeds 9, --out "$out/$name" > "$out/$name.log" 2>&1; }
short="train.warmup=0.1 prune.warmup_steps=none train.epochs=3"
run dense sst2 --arms plain model.freeze_embeddings=true &
run size-mix paper/stability --arms mix $short prune.rank=size &
run size-plain paper/stability --arms plain $short prune.rank=size &
run zeros-mix paper/stability --arms mix $short &
wait
