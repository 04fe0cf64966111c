#!/usr/bin/env bash
# The paper's pruning tables with gte-small on one GPU: seeds stacked, a few runs side by side, the most wanted first.
#   benchmarks/here_gpu.sh MODEL DATA OUT [WORKERS]      DATA holds sst2, rte and mrpc; the same command goes on where it stopped
#   ONLY='^(dense|stability) ' takes the jobs whose line fits; EXTRA holds further changes (a trial: "data.limit=64 train.device=cpu train.precision=fp32")
# Then: python benchmarks/gather.py results/here-gpu.json OUT
set -u
export model=$1 data=$2 out=$3
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=2 PYTHONPATH=. START=$(date +%s)
mkdir -p "$out/logs"
run() {  # folder, recipe, arms, changes…
  local folder=$1 recipe=$2 arms=$3; shift 3
  if [[ "$*" == *distill.teacher* ]]; then  # a teacher that is trained beside it
    for _ in $(seq 300); do [ -f "$out/dense/plain/result.json" ] && break; sleep 1; done
  fi
  python3 -m bermo run "$recipe" --arms "$arms" "model.backbone=$model" train.checkpoint_minutes=100 --out "$out/$folder" "$@" ${EXTRA:-} \
    > "$out/logs/$folder-$arms.log" 2>&1
  echo "$folder $arms: $? after $(($(date +%s) - START)) s"
}
export -f run
sst2="data.folder=$data/sst2" none="train.keep=none" taught="distill.teacher=$out/dense/plain"
rte="data.task=rte data.folder=$data/rte train.epochs=10 $none" mrpc="data.task=mrpc data.folder=$data/mrpc train.epochs=10 $none"
small=magnitude-plain,magnitude-mix,score-plain,score-mix,size-plain,size-mix,soft-plain,soft-mix,l0-plain,l0-mix
grep -E "${ONLY:-.}" <<JOBS | xargs -P "${4:-3}" -I {} bash -c 'run {}'
dense here/dense plain $sst2
stability here/stability size-mix $sst2 $none
stability here/stability size-plain $sst2 $none
taught here/distillation mix $sst2 $none $taught
score here/stability score-plain $sst2 $none train.epochs=3
score here/stability score-mix $sst2 $none train.epochs=3
methods here/pruning-methods l0-plain,l0-mix $sst2 $none
methods here/pruning-methods soft-plain,soft-mix $sst2 $none
methods here/pruning-methods size-plain,size-mix $sst2 $none
methods here/pruning-methods magnitude-plain,magnitude-mix $sst2 $none
rte here/pruning-methods $small $rte
mrpc here/pruning-methods $small $mrpc
rte here/dense plain,mix $rte
mrpc here/dense plain,mix $mrpc
baselines here/baselines first-1-plain,first-2-plain,taught-1,taught-2 $sst2 $none $taught
dense here/dense mix $sst2 $none
epochs here/convergence 1-epochs-plain,1-epochs-mix,2-epochs-plain,2-epochs-mix $sst2 $none
epochs here/convergence 5-epochs-plain,5-epochs-mix $sst2 $none
taught here/distillation plain $sst2 $none $taught
JOBS
grep -h "the fused kernels" "$out"/logs/*.log && echo "Some shapes went without fused kernels: slower, but right."
