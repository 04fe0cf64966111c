#!/usr/bin/env bash
# The chain that makes a fine-tuned encoder smallest and fastest, on SST-2, five seeds of each student: the first layers
# of the teacher with a share of their heads and neurons → taught by its answers alone on TIMES variants of every text →
# int8 (that part by chain_cpu.py). Truncations are taught alike. Beside them the same with all-mpnet-base-v2 as teacher:
# its answers come in a file, since its tokens are others, and its student starts from gte-small's layers.
#   benchmarks/chain_gpu.sh GTE MPNET DATA OUT      folders of both encoders (MPNET's may come later); DATA holds
#       sst2
#   SECONDS_LEFT=1200 for everything, SEEDS=5 (all seeds of a student are stacked in one process), TIMES=10, EPOCHS=5,
#       TEACHER_EPOCHS=3, LR=2e-4, WORKERS=8, ONLY='^(three|two)-' (some of the students), TEXTS=FILE (texts of another
#       kind, one a line, that gte-small's students learn from too)
#   a trial elsewhere: PRECISION=fp32 SEEDS=2 TIMES=2 EPOCHS=1 and a DATA with few rows.
#   The same command goes on where it stopped.
# Leaves OUT/packed-1/students.tar.N of at most 15 MiB (layers in half precision; the frozen table of words stays there)
# and OUT/packed-1/chain.json. At home, with all parts in one folder:
#   python benchmarks/ship_pack.py --packed PACKED --model GTE --out STUDENTS
#   python benchmarks/chain_cpu.py STUDENTS --facts PACKED/chain.json --data DATA/sst2 --mpnet MPNET --out OUT
set -u
export gte=$1 mpnet=$2 data=$3 out=$4 python=${PYTHON:-python3}
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1 PYTHONPATH=${PYTHONPATH:-.} START=$(date +%s) PRECISION=${PRECISION:-bf16}
export deadline=${SECONDS_LEFT:-1200} seeds=${SEEDS:-5}
export students_end=$((deadline - 60))
mkdir -p "$out"

now() { echo $(($(date +%s) - START)); }
# Arguments: name, options… A run in $out/name that is asked to stop, and saves, when the time is over; one that breaks
# is tried once more without graphs and fused kernels.
train() {
  local name=$1 fast code left; shift
  [ -f "$out/$name/result.json" ] && { echo "$name: done before"; return; }
  for fast in auto off; do
    left=$((students_end - $(now)))
    [ $left -gt 5 ] || { echo "$name: no time"; return; }
    timeout -k 20 -s TERM $left "$python" -m bermo train --task sst2 --mix none --precision "$PRECISION" --freeze-embeddings \
      --checkpoint-minutes 100 --fast $fast --out "$out/$name" "$@" > "$out/$name.log" 2>&1
    code=$?
    echo "$name: $code after $(now) s"
    case $code in 0|2|75|124|137|143) [ $code = 2 ] && tail -n 1 "$out/$name.log"; return;; esac
    tail -n 1 "$out/$name.log" | cut -c 1-300; mv "$out/$name.log" "$out/$name-broken.log"; rm -rf "${out:?}/$name"
  done
}
# Argument: a line of the list below. A student of the gte-small teacher, or (by answers in a file) of mpnet's.
student() {
  local name=$1 layers=$2 neurons=$3 heads=$4 by=$5
  local shape="--student-layers $layers --student-neurons $neurons --student-heads $heads"
  if [ "$by" = gte ]; then
    train "$name" $more $others --teacher "$teacher" $shape --seeds "$seeds" --together "$seeds"
  else
    train "$name-start" $more --teacher "$teacher" $shape --epochs 0.001 --seeds 1,
    until [ -f "$out/mpnet.done" ] || [ "$(now)" -gt "$students_end" ]; do sleep 1; done
    train "$name" $more --model "$out/$name-start/seed-1/model" --pooling first --teacher-answers "$out/mpnet.csv" --seeds "$seeds" --together "$seeds"
  fi
}
export -f now train student
export others=${TEXTS:+--unlabelled $TEXTS}
export short="--batch-size 32 --epochs ${TEACHER_EPOCHS:-3}" teacher=$out/dense/seed-1/model
export more="--data $out/more --distill-hard 0 --distill-soft 1 --batch-size 128 --lr ${LR:-2e-4} --epochs ${EPOCHS:-5}"

{ [ -d "$out/more" ] || OMP_NUM_THREADS=${AUGMENT_THREADS:-4} "$python" benchmarks/augment.py --model "$gte" --data "$data/sst2" --times "${TIMES:-10}" --out "$out/more" > "$out/augment.log" 2>&1
  echo "augmented after $(now) s"
  OMP_NUM_THREADS=${AUGMENT_THREADS:-4} train tokens --model "$gte" --pooling first --first-layers 1 --data "$out/more" --epochs 0.001 --batch-size 128 --seeds 1,; } &   # fills the cache of tokens
telling=$!
# The teacher is the first of five seeds, not the best one: shares of its score are not measured against a choice.
train dense --model "$gte" --pooling first --data "$data/sst2" $short --seeds "$seeds" --together "$seeds" &
dense=$!
{ until [ -f "$mpnet/config.json" ] || [ "$(now)" -gt "$students_end" ]; do sleep 1; done
  train mpnet --model "$mpnet" --data "$data/sst2" $short --pooling mean --seeds 1,
  until [ -f "$out/tokens/result.json" ] || [ "$(now)" -gt "$students_end" ]; do sleep 1; done
  for part in dev test-labeled; do
    "$python" -m bermo evaluate "$out/mpnet" "$data/sst2/$part.tsv" --out "$out/mpnet-$part.json" > "$out/mpnet-$part.log" 2>&1; done
  [ -f "$out/mpnet.done" ] || "$python" -m bermo predict "$out/mpnet" "$out/more/train.tsv" --columns sentence --probabilities --with-text \
    --batch-size 512 --precision "$PRECISION" --out "$out/mpnet.csv" > "$out/predict.log" 2>&1
  touch "$out/mpnet.done"; echo "answers of mpnet after $(now) s"; } &
wait $dense $telling
echo "teacher and texts after $(now) s"
train answers $more --teacher "$teacher" --student-layers 1 --epochs 0.001 --seeds 1,           # fills the cache of answers

# Name, the teacher's layers, shares of neurons and heads, teacher. Throughput of each shape over its dense teacher in
# torch fp32, OpenVINO int8, 32 × 128, CPU time of one thread of a busy Cascade Lake, untrained: three-50 21, three-33
# 24, three-25 33, two-50 38, two 25; four-67 47 (mpnet takes 3.75 times gte-small's time).
grep -E "${ONLY:-.}" <<STUDENTS | xargs -P "${WORKERS:-8}" -I {} bash -c 'student {}'
three-50 1,2,3 0.5 0.5 gte
three-33 1,2,3 0.3333 0.5 gte
four-67-mpnet 1,2,3,4 0.6667 0.6667 mpnet
three-25 1,2,3 0.25 0.25 gte
two-50 1,2 0.5 0.5 gte
two 1,2 1 1 gte
one 1 1 1 gte
STUDENTS
wait
echo "students after $(now) s"
rm -rf "$out/packed-1"
"$python" benchmarks/ship_pack.py --every-seed --runs "$out" --model "$gte" --out "$out/packed" > "$out/pack.log" 2>&1
echo "packed: $? after $(now) s"
tail -n 60 "$out/pack.log"
