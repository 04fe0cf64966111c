#!/usr/bin/env bash
# Progressive stacking against the plain run at equal time: held-out likelihood of the box's shape from random weights.
#   benchmarks/stack_gpu.sh DATA OUT [MINUTES]
# DATA holds wikipedia/*.xz. Side by side: six layers for all of the time, and three layers for a third of it, then
# stacked to six for the rest. OUT/{plain,three,six}/result.json.
set -u
data=$1 out=$2 minutes=${3:-3}
more=${BOX_MORE:-} precision=${BOX_PRECISION:-bf16} python=${PYTHON:-python} work=${BOX_WORK:-$out/work}
third=$($python -c "print($minutes / 3)") rest=$($python -c "print($minutes * 2 / 3)")
mkdir -p "$out" "$work"
export OMP_NUM_THREADS=1 BERMO_CACHE=$work/cache

run() { # name, options
  local name=$1; shift
  $python -m bermo pretrain --text "$data"/wikipedia/*.xz --precision $precision --looks 5 --checkpoint-minutes 100 \
    "$@" $more --out "$out/$name" > "$out/$name.log" 2>&1
}
run plain --tokenizer box --config box --minutes "$minutes" &
run three --tokenizer box --config box --layers 3 --minutes "$third"
run six --model "$out/three/model" --layers 6 --minutes "$rest"
wait
$python -c "
import json, sys
for name in ('plain', 'three', 'six'):
    result = json.load(open(f'{sys.argv[1]}/{name}/result.json'))
    print(f\"{name:6} {result['steps']:7,} steps {result['seconds']:6.0f} s  likelihood {result['values']['likelihood']:.3f}\")
" "$out"
