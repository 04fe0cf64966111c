#!/usr/bin/env bash
# The paper's pruning tables with gte-small on one GPU: seeds stacked, a few runs side by side, the most
# wanted first.
#   benchmarks/gpu_queue.sh MODEL DATA OUT [WORKERS]
#       DATA holds sst2, rte and mrpc; the same command goes on where it stopped
#   ONLY='^run (dense|stability) ' takes the jobs whose line fits; EXTRA holds further changes (a trial:
#       "data.limit=64 train.device=cpu train.precision=fp32"); GIVE_UP= trains plain encoders to the end of 25 epochs
#       though all their answers are one
# Then: python benchmarks/gather.py results/gpu.json OUT --beside results/gpu.json && python benchmarks/gpu_tables.py
#       results/gpu.json && python scripts/make_tables.py && python scripts/make_figures.py
set -u
export model=$1 data=$2 out=$3
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=2 PYTHONPATH=. START=$(date +%s)
mkdir -p "$out/logs"
# Arguments: folder, recipe, arms, changes…
run() {
  local folder=$1 recipe=$2 arms=$3; shift 3
  if [[ "$*" == *distill.teacher* ]]; then  # a teacher that is trained beside it
    for _ in $(seq 300); do [ -f "$out/dense/plain/result.json" ] && break; sleep 1; done
  fi
  python3 -m bermo run "$recipe" --arms "$arms" "model.backbone=$model" train.checkpoint_minutes=100 --out "$out/$folder" "$@" ${EXTRA:-} \
    > "$out/logs/$folder-$arms.log" 2>&1
  echo "$folder $arms: $? after $(($(date +%s) - START)) s"
}
# Arguments: what, changes… Does it keep the mix's deep layers alive where the score alone ranks? Three seeds,
# and one of them cut after each layer.
deep() {
  local what=$1; shift
  run "deep-$what" gpu/stability score-mix train.epochs=3 "$@" --seeds 9,25,39
  python3 -m bermo analyse "$out/deep-$what/score-mix" --data "$data/sst2" --measures layers --rows 872 --max-texts 300 --out "$out/deep-$what/look" >> "$out/logs/deep-$what-score-mix.log" 2>&1
}
export -f run deep
sst2="data.folder=$data/sst2" none="train.keep=none" taught="distill.teacher=$out/dense/plain"
rte="data.task=rte data.folder=$data/rte train.epochs=10 $none" mrpc="data.task=mrpc data.folder=$data/mrpc train.epochs=10 $none"
small=magnitude-plain,magnitude-mix,score-plain,score-mix,size-plain,size-mix,soft-plain,soft-mix,l0-plain,l0-mix
grep -E "${ONLY:-.}" <<JOBS | xargs -P "${4:-3}" -I {} bash -c '{}'
run dense gpu/dense plain $sst2
run stability gpu/stability size-mix $sst2 $none
run stability gpu/stability size-plain $sst2 $none
run taught gpu/distillation mix $sst2 $none $taught
run score gpu/stability score-plain $sst2 $none train.epochs=3
run score gpu/stability score-mix $sst2 $none train.epochs=3
run methods gpu/pruning-methods l0-plain,l0-mix $sst2 $none
run methods gpu/pruning-methods soft-plain,soft-mix $sst2 $none
run methods gpu/pruning-methods size-plain,size-mix $sst2 $none
run methods gpu/pruning-methods magnitude-plain,magnitude-mix $sst2 $none
run rte gpu/pruning-methods $small $rte
run mrpc gpu/pruning-methods $small $mrpc
run rte gpu/dense plain,mix $rte
run mrpc gpu/dense plain,mix $mrpc
run baselines gpu/baselines taught-1,taught-2 $sst2 $none $taught
run baselines gpu/baselines first-1-plain,first-2-plain $sst2 $none
run dense gpu/dense mix $sst2 $none
run epochs gpu/convergence 1-epochs-plain,1-epochs-mix,2-epochs-plain,2-epochs-mix $sst2 $none
deep as-it-is $sst2
deep layer-dropout $sst2 model.mix.layer_dropout=0.3
deep global $sst2 prune.scope=global
deep hidden-teacher $sst2 $taught distill.hidden=1
run epochs gpu/convergence 5-epochs-plain,5-epochs-mix $sst2 $none
run taught gpu/distillation plain $sst2 $none $taught
run long paper/stability mix $sst2 train.together=10
run long paper/stability plain $sst2 $none train.together=10 ${GIVE_UP-train.give_up=3}
JOBS
grep -h "the fused kernels" "$out"/logs/*.log && echo "Some shapes went without fused kernels: slower, but right."
