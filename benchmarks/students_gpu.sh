#!/usr/bin/env bash
# Students of gte-small on SST-2 over five seeds: whole layers and layers pruned by heads and neurons, taught
# alike (the same teacher, texts and steps), and the first layers alone; each seed scored on the test file.
#   benchmarks/students_gpu.sh MODEL DATA OUT      DATA holds sst2 with test-labeled.tsv
#   SEEDS=9,25,39,52,59 WORKERS=7 TIMES=5 (rows of the larger training file) EPOCHS=5, ONLY='^(four|two) ' (some
#       of them), LEFT=900 seconds after which none begins; EXTRA holds further options (a trial: "--limit 64
#       --device cpu --precision fp32"). The same command goes on where it stopped.
# Then: python benchmarks/student_rows.py OUT
set -u
export model=$1 data=$2 out=$3 python=${PYTHON:-python3} SEEDS=${SEEDS:-9,25,39,52,59} EXTRA=${EXTRA:-} LEFT=${LEFT:-900}
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1 PYTHONPATH=. START=$(date +%s)
mkdir -p "$out/test" "$out/logs"
# Arguments: folder, options… Trains, then scores every seed on the test file.
train() {
  local name=$1; shift
  [ $(($(date +%s) - START)) -lt "$LEFT" ] || { echo "$name: not begun"; return; }
  "$python" -m bermo train --task sst2 --mix none --precision bf16 --checkpoint-minutes 100 --out "$out/$name" "$@" $EXTRA > "$out/logs/$name.log" 2>&1
  echo "$name: $? after $(($(date +%s) - START)) s"
  for folder in "$out/$name"/seed-*/model; do
    local to=$out/test/$name-$(basename "$(dirname "$folder")").json
    [ -d "$folder" ] && [ ! -f "$to" ] && "$python" -m bermo evaluate "$folder" "$data/sst2/test-labeled.tsv" --out "$to" >> "$out/logs/$name.log" 2>&1
  done
}
export -f train
plain="--data $data/sst2 --freeze-embeddings"
"$python" benchmarks/augment.py --model "$model" --data "$data/sst2" --times "${TIMES:-5}" --out "$out/more" > "$out/logs/augment.log" 2>&1 &
train teacher --model "$model" $plain --seeds 9,
wait
# As in ship_gpu.sh: batches of 128 fill the GPU; the variants' labels are unknown, so the teacher's answers are
# all there is to learn; pruning ends early, to leave time for repair.
together="--seeds $SEEDS --together $(tr ',' '\n' <<< "$SEEDS" | grep -c .)"
taught="--data $out/more --teacher $out/teacher --distill-hard 0 --distill-soft 1 --batch-size 128 --lr 1e-4 --epochs ${EPOCHS:-5} --freeze-embeddings"
units="--prune heads-and-neurons --rank size --final-warmup 3"
train answers $taught --student-layers 1 --epochs 0.001 --seeds 9,                # fills the cache of the answers
{ # Whole units cannot be pruned in seeds that are stacked: a process for each.
  for seed in ${SEEDS//,/ }; do echo "four-60.$seed $taught --student-layers 1,2,3,4 $units --density 0.6 --seeds $seed,"; done
  echo "four $taught --student-layers 1,2,3,4 $together"
  for seed in ${SEEDS//,/ }; do echo "three-55.$seed $taught --student-layers 1,2,3 $units --density 0.55 --seeds $seed,"; done
  echo "three $taught --student-layers 1,2,3 $together"
  echo "two $taught --student-layers 1,2 $together"
  for layers in 4 3 2; do echo "alone-$layers --model $model --first-layers $layers $plain $together"; done
} | grep -E "${ONLY:-.}" | xargs -P "${WORKERS:-7}" -I {} bash -c 'train {}'
