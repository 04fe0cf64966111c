#!/usr/bin/env bash
# Movement pruning to 10 % on SST-2, three epochs: who survives, and where the mix reads. All runs side by
# side on one GPU.
#   benchmarks/stability_gpu.sh MODEL DATA OUT
set -u
model=$1 data=$2 out=$3
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1
mkdir -p "$out"
# Arguments: name, arm, seed, changes…
start() {
  local name=$1 arm=$2 seed=$3; shift 3
  python -m bermo run paper/stability "model.backbone=$model" "data.folder=$data/sst2" train.epochs=3 train.warmup=0.1 \
    prune.warmup_steps=none train.checkpoint_minutes=100 --arms "$arm" --seeds "$seed," --out "$out/$name-$seed" "$@" \
    > "$out/$name-$arm-$seed.log" 2>&1 &
}
for seed in 9 25; do start zeros plain "$seed"; start zeros mix "$seed"; done
for arm in plain mix; do start magnitude-start "$arm" 9 prune.start=magnitude; done
for arm in plain mix; do start global "$arm" 9 prune.scope=global; done
for arm in plain mix; do start magnitude "$arm" 9 prune.method=magnitude; done
start within mix 9 model.mix.kind=within
start slow-scores plain 9 prune.lr=1e-3
wait
for run in zeros-9/mix zeros-25/mix magnitude-start-9/mix within-9/mix; do
  PYTHONPATH=. python benchmarks/depth.py "$out/$run" --data "$data/sst2" --out "$out/depth-${run//\//-}.json" > "$out/depth-${run//\//-}.log" 2>&1
done
