#!/usr/bin/env bash
# The methods of docs/how-to/methods.md on a plain encoder of twelve layers and SST-2: scores of three seeds.
#   benchmarks/methods_gpu.sh MODEL DATA OUT [ARM...]
# MODEL is an encoder's folder (gte-small), DATA the unpacked sst2. Without arms: all. "dense" is trained first where it
# is missing, since it teaches; the others run side by side, METHODS_JOBS at once (4). A stopped arm goes on.
# METHODS_MORE adds options to every training, such as "--device cpu --limit 64 --epochs 1 --precision fp32" for a trial.
# OUT/methods.json has a row for each arm: the scores, and for int8 the scores of the exported graphs on the same rows.
set -u
model=$1 data=$2 out=$3
[ $# -gt 3 ] && arms="${*:4}" || arms="dense first last alternate symmetric contribution taught theseus int8 int8-taught \
mixout rdrop smart freelb lora low-rank low-rank-taught power imp"
more=${METHODS_MORE:-} jobs=${METHODS_JOBS:-4}
python=${PYTHON:-python}
mkdir -p "$out"
export OMP_NUM_THREADS=1 BERMO_CACHE=$out/cache

options() { # what an arm adds to the plain fine-tuning
  case $1 in
    dense) ;;
    first | last | alternate | symmetric | contribution) echo "--keep-layers 6 --keep-by $1" ;;
    taught) echo "--teacher $out/dense --student-layers 1,2,3,4,5,6" ;;
    theseus) echo "--teacher $out/dense --theseus 6" ;;
    int8) echo "--quantize int8" ;;
    int8-taught) echo "--quantize int8 --teacher $out/dense --student-layers 1,2,3,4,5,6,7,8,9,10,11,12" ;;
    mixout) echo "--mixout 0.7" ;;
    rdrop) echo "--rdrop 1" ;;
    lora) echo "--lora 8" ;;
    imp) echo "--prune magnitude --density 0.3 --scope global --rewind 4" ;;
    power) echo "--keep-tokens 0.4 --pooling first" ;;
    low-rank) echo "--low-rank 0.5 --embedding-rank 0.5" ;;
    low-rank-taught) echo "--low-rank 0.5 --embedding-rank 0.5 --teacher $out/dense --student-layers 1,2,3,4,5,6,7,8,9,10,11,12" ;;
    smart | freelb) echo "--adversarial $1" ;;
    *) echo "no arm $1" >&2; exit 1 ;;
  esac
}

train() {
  $python -m bermo train --model "$model" --mix none --task sst2 --data "$data" --epochs 3 --seeds 1,2,3 --precision bf16 \
    --checkpoint-minutes 100 $(options "$1") $more --out "$out/$1" > "$out/$1.log" 2>&1 || echo "$1 failed: $out/$1.log"
}

exported() { # what int8 makes of an arm's seeds, on the rows that validate; "dense" is rounded after training
  for model in "$out/$1"/seed-*/model; do
    seed=$(basename "$(dirname "$model")"); seed=${seed#seed-}
    [ -e "$out/$1-int8-$seed" ] || $python -m bermo export "$model" --to onnx-int8-signed \
      --data "$data/dev.tsv" --max-loss 100 --out "$out/$1-int8-$seed" >> "$out/$1.log" 2>&1 || echo "$1 export failed"
  done
}

[ -e "$out/dense/result.json" ] || train dense
for arm in $arms; do
  [ "$arm" = dense ] && continue
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 0.2; done
  train "$arm" &
done
wait
for arm in dense int8 int8-taught; do
  [ -e "$out/$arm/result.json" ] && exported "$arm" &
done
wait
$python "$(dirname "$0")/methods_rows.py" "$out"
