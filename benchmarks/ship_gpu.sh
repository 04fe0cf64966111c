#!/usr/bin/env bash
# Small students of gte-small on SST-2: truncations without a teacher, then students of 2 to 6 layers, whole
# and pruned by heads and neurons, a few side by side on one GPU, the most wanted first; shrunk, timed on the
# GPU, and packed for transfer.
#   benchmarks/ship_gpu.sh MODEL DATA OUT [TEACHER]      DATA holds sst2
#   TEACHER: a run that teaches, also one that is still being trained: it is waited for (200 s; after that,
#       and without one, one is trained here)
#   SECONDS_LEFT=900 for everything, TIMES=5 (rows of the larger training file), EPOCHS=5, WORKERS=7,
#       ONLY='^(four|two)' (some of the students);
#   a trial elsewhere: DEVICE=cpu PRECISION=fp32. The same command goes on where it stopped.
# Then: python benchmarks/ship_pack.py --packed OUT/packed-1 OUT/packed-2 --model MODEL --out STUDENTS
set -u
export model=$1 data=$2 out=$3 teacher=${4:-} python=${PYTHON:-python3}
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1 PYTHONPATH=. START=$(date +%s) PRECISION=${PRECISION:-bf16}
deadline=${SECONDS_LEFT:-900}
export students_end=$((deadline - 110)) words=$out/words.txt
mkdir -p "$out/small"
cut -f 1 "$data/sst2/train.tsv" | tail -n +2 > "$words"

now() { echo $(($(date +%s) - START)); }
# Arguments: log, folder, options… A run that is asked to stop, and saves, when the time for students is over.
attempt() {
  local log=$1 folder=$2 left=$((students_end - $(now))); shift 2
  [ $left -gt 5 ] || return 124
  timeout -k 20 -s TERM $left "$python" -m bermo train --task sst2 --mix none --precision "$PRECISION" \
    --seeds 9, --checkpoint-minutes 100 --out "$folder" "$@" > "$log" 2>&1
}
# Arguments: name, options… A run in $out/name; one that breaks is tried once more without graphs and fused
# kernels.
train() {
  local name=$1 code; shift
  [ -f "$out/$name/result.json" ] && { echo "$name: done before"; return; }
  attempt "$out/$name.log" "$out/$name" "$@"; code=$?
  case $code in 0|124|137|143) ;; *)
    echo "$name: broke ($code) after $(now) s: $(tail -n 1 "$out/$name.log" | cut -c 1-300)"
    rm -rf "$out/$name"
    attempt "$out/$name-again.log" "$out/$name" "$@" --fast off; code=$?;;
  esac
  echo "$name: $code after $(now) s$([ $code = 124 ] && echo ", out of time")"
}
# Arguments: name, options… Trains; then what it no longer uses is deleted, and where words were trained,
# those of no training text.
student() {
  local name=$1
  train "$@"
  case $name in *words*|*-[0-9][0-9]) ;; *) return;; esac
  [ -d "$out/$name/seed-9/model" ] && [ ! -d "$out/small/$name" ] || return
  case $name in *words*) set -- --vocabulary "$words";; *) set --;; esac
  "$python" -m bermo shrink "$out/$name/seed-9/model" --out "$out/small/$name" "$@" > "$out/small-$name.log" 2>&1 \
    || echo "$name: not shrunk: $(tail -n 1 "$out/small-$name.log" | cut -c 1-300)"
}
export -f now attempt train student
plain="--data $data/sst2 --freeze-embeddings"                                # 3 epochs, batch 32, rate 3e-5

for layers in 4 3 2; do echo "alone-$layers --model $model --first-layers $layers $plain"; done | xargs -P 3 -I {} bash -c 'train {}' &
alone=$!
{ [ -d "$out/more" ] || OMP_NUM_THREADS=4 "$python" benchmarks/augment.py --model "$model" --data "$data/sst2" --times "${TIMES:-5}" --out "$out/more" > "$out/augment.log" 2>&1
  echo "augmented after $(now) s"
  train tokens --model "$model" --first-layers 1 --data "$out/more" --epochs 0.001 --batch-size 128; } &   # fills the cache of tokens
telling=$!
if [ -n "$teacher" ]; then
  until [ -f "$teacher/result.json" ] || [ "$(now)" -gt "${PATIENCE:-200}" ]; do sleep 2; done
fi
if [ ! -f "$teacher/result.json" ]; then
  [ -n "$teacher" ] && echo "$teacher has not come: a teacher is trained here"
  teacher=$out/dense
  train dense --model "$model" $plain
fi
echo "teacher after $(now) s"
wait $telling
# Many rows, many steps: batches of 128 fill the GPU, and the rate goes up with them (3e-5 · √4, and shallow
# students bear 1e-4). The variants' labels are unknown, so the teacher's answers are all there is to learn.
# Pruning ends early, to leave time for repair. A student starts from the teacher's own fine-tuned layers,
# embeddings and head; of several seeds the teacher is the best.
taught="$plain --teacher $teacher"
more="--data $out/more --teacher $teacher --distill-hard 0 --distill-soft 1 --batch-size 128 --lr 1e-4 --epochs ${EPOCHS:-5}"
units="--prune heads-and-neurons --rank size --final-warmup 3"
frozen="$more --freeze-embeddings"
train answers $more --student-layers 1 --epochs 0.001                       # fills the cache of the teacher's answers

# Throughput of each shape, int8, 32 × 128, two ARM cores, over dense torch, from untrained models: six-70
# 9.0, five-90 8.9, four 10.7, six-45 13.2, four-80 13.1, three 15.6, four-60 16.9, three-90 17, two 29,
# three-55 26. The most promising come first.
grep -E "${ONLY:-.}" <<STUDENTS | xargs -P "${WORKERS:-7}" -I {} bash -c 'student {}'
six-70 $frozen --student-layers 1,2,3,4,5,6 $units --density 0.7
four $frozen --student-layers 1,2,3,4
four-60 $frozen --student-layers 1,2,3,4 $units --density 0.6
three $frozen --student-layers 1,2,3
six-45 $frozen --student-layers 1,2,3,4,5,6 $units --density 0.45
two $frozen --student-layers 1,2
four-80 $frozen --student-layers 1,2,3,4 $units --density 0.8
four-words-60 $more --student-layers 1,2,3,4 $units --density 0.6
three-55 $frozen --student-layers 1,2,3 $units --density 0.55
five-90 $frozen --student-layers 1,2,3,4,5 $units --density 0.9
three-90 $frozen --student-layers 1,2,3 $units --density 0.9
taught-4 $taught --student-layers 1,2,3,4
taught-2 $taught --student-layers 1,2
two-words $more --student-layers 1,2
four-hidden $frozen --student-layers 1,2,3,4 --distill-hidden 1
STUDENTS
wait $alone
echo "students after $(now) s"

candidates=
for name in six-70 four-60 two; do
  for folder in "$out/small/$name" "$out/$name/model"; do [ -d "$folder" ] && { candidates="$candidates $folder"; break; }; done
done
left=$((deadline - 30 - $(now)))
[ $left -gt 20 ] && timeout -k 5 $left "$python" -m bermo bench "$teacher" $candidates --device "${DEVICE:-cuda}" --precision fp32,fp16 \
  --batch 1,128 --lengths 32,128 --rounds 3 --threads 2 --data "$data/sst2/dev.tsv" --out "$out/bench" > "$out/bench.log" 2>&1
echo "bench: $? after $(now) s"
rm -rf "$out/packed-1" "$out/packed-2"
"$python" benchmarks/ship_pack.py --runs "$out" --teacher "$teacher" --model "$model" --out "$out/packed" > "$out/pack.log" 2>&1
echo "packed: $? after $(now) s"
tail -n 30 "$out/pack.log"
