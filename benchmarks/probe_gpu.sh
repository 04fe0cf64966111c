#!/usr/bin/env bash
# What probing must show, on one GPU: jobs from one queue, the most wanted first; only JSON and logs come
# back, in OUT/probe-gpu.tar.xz.
#   benchmarks/probe_gpu.sh MODEL DATA OUT STAGE…
#       the same command goes on; then: python benchmarks/probe_tables.py OUT --xprobe XPROBE \
#       --beside results/probing-gpu.json && python scripts/make_tables.py && python scripts/make_figures.py
# MODEL: gte-small's folder. DATA: a folder with xprobe_en/, sst2/, cola/, rte/ and wikitext103_valid_test/.
# STAGE, in the order in which their jobs begin:
#   frozen
#       nine tasks × all layers with controls, gte-small and the box: six processes
#   gte-right gte-wrong
#       five semantic tasks, plain and mix, five seeds stacked, 3 epochs: 12,876 stacked steps; wrong:
#       capitals kept
#   box-right box-wrong                 the same with the box
#   gte-right-rest … box-wrong-rest     the other four tasks: 8,934 stacked steps
#   NAME-right                          the four semantic tasks that count, with MODEL under another name
#   NAME-right-rest                     and the other four; REST=word-content takes that one alone
#   NAME-within-right NAME-tensor-right
#       the same, the mix alone, by the other two readings of the paper's norm (NAME-raw-right: by none)
#   gte-words box-words                 word content for 20 epochs
#   quick
#       the box on WikiText-103; the box trained and untrained on SST-2, CoLA and RTE
#   vectors                             vectors.py, to be run alone
# WORKERS [5] processes at a time; no job begins after BUDGET [380] seconds, and what still runs after BUDGET
# + 20 is stopped: what has ended is packed. FINETUNE holds changes of the fine-tuned stages
# ("train.epochs=1"); SEEDS, STACK (seeds at once), LIMIT (frozen), EPOCHS, PRECISION and ROWS (quick), COUNT
# (vectors), WORDS_EPOCHS [20] make all smaller.
set -u
export model=$1 data=$2 out=$3; shift 3
export python=${PYTHON:-python3} xprobe=$data/xprobe_en seeds=${SEEDS:-63,77,9,96,39}
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=${OMP_NUM_THREADS:-3} PYTHONPATH=. BEGAN=$(date +%s) BUDGET=${BUDGET:-380}
export fields="train.together=${STACK:-5} train.keep=none train.checkpoint_minutes=100 ${FINETUNE:-}" LIMIT=${LIMIT:-} EPOCHS=${EPOCHS:-3} PRECISION=${PRECISION:-bf16} ROWS=${ROWS:-100000} COUNT=${COUNT:-100000}
mkdir -p "$out/logs"

# Arguments: name, command…
job() {
  local name=$1 began=$(($(date +%s) - BEGAN)); shift
  if [ $began -ge "$BUDGET" ]; then echo "$name: not begun" | tee -a "$out/seconds.log"; return; fi
  timeout --foreground -k 10 $((BUDGET + 20 - began)) "$@" > "$out/logs/$name.log" 2>&1
  echo "$name: $? from $began to $(($(date +%s) - BEGAN)) s" | tee -a "$out/seconds.log"
}
# Arguments: name, encoder, tasks.
frozen() {
  job "frozen-$1-${3%%,*}" $python -m bermo probe --model "$2" --data "$xprobe" --tasks "$3" --batch-size 256 ${LIMIT:+--limit $LIMIT} --out "$out/frozen-$1"
}
# Arguments: folder, encoder, case, task. Both arms in one process, which imports and builds its kernels once.
tuned() {
  local case=""
  [ "$3" = wrong ] && case="data.lowercase=off data.max_unknown=1"
  job "$1-$4" $python -m bermo run paper/probing "model.backbone=$2" "data.folder=$xprobe" $case $fields --arms "$4-plain,$4-mix" --seeds "$seeds" --out "$out/$1"
}
# Arguments: folder, encoder, task, kind of mix. Seeds whose norm reads the whole batch cannot be stacked.
reading() {
  local alone=""
  [ "$4" = tensor ] && alone="train.together=1"
  job "$1-$3" $python -m bermo run paper/probing "model.backbone=$2" "data.folder=$xprobe" $fields $alone "model.mix.kind=$4" --arms "$3-mix" --seeds "$seeds" --out "$out/$1"
}
# Arguments: folder, encoder, arm.
words() {
  job "$1-$3" $python -m bermo run paper/probing "model.backbone=$2" "data.folder=$xprobe" $fields train.epochs=${WORDS_EPOCHS:-20} --arms "word-content-$3" --seeds "$seeds" --out "$out/$1"
}
# Arguments: task, kind.
glue() {
  job "box-$1-$2" $python -m bermo train --task "$1" --data "$data/$1" --lr 3e-4 --precision "$PRECISION" --epochs "$EPOCHS" --seeds 9,25 --together 2 \
    $([ "$2" = untrained ] && echo --untrained) --out "$out/box-$1-$2"
}
# Argument: the part of the data.
masked() {
  job "masked-$1" $python benchmarks/masked.py "$data/wikitext103_valid_test/wiki.$1.tokens" --rows "$ROWS" --out "$out/masked-$1.json"
}
# Argument: the precision.
vectors() {
  job "vectors-$1" $python benchmarks/vectors.py "$model" --count "$COUNT" --precision "$1"
}
export -f job frozen tuned reading words glue masked vectors

# Arguments: folder, encoder, case, tasks.
finetune() {
  for task in $4; do echo "tuned $1 $2 $3 $task"; done
}
semantic="tense subject-number object-number coordination-inversion odd-man-out"
rest="bigram-shift word-content sentence-length tree-depth"
queue() {
  for stage in "$@"; do
    local encoder=$model; case $stage in box-*) encoder=box ;; esac
    local case=right; case $stage in *-wrong*) case=wrong ;; esac
    case $stage in
      frozen)  # word-content is as long as the others of its process together
        for pair in "gte $model" "box box"; do
          for tasks in word-content,tense bigram-shift,subject-number,sentence-length,odd-man-out object-number,coordination-inversion,tree-depth; do
            echo "frozen $pair $tasks"
          done
        done ;;
      gte-right | gte-wrong | box-right | box-wrong) finetune "$stage" "$encoder" $case "$semantic" ;;
      *-right-rest | gte-wrong-rest | box-wrong-rest) finetune "${stage%-rest}" "$encoder" $case "${REST:-$rest}" ;;
      *-within-right | *-tensor-right | *-raw-right)
        local kind=${stage%-right}; kind=${kind##*-}
        for task in ${semantic% *}; do echo "reading $stage $encoder $task $kind"; done ;;
      *-words) for arm in plain mix; do echo "words $stage $encoder $arm"; done ;;
      quick)
        for task in sst2 cola rte; do echo "glue $task trained"; echo "glue $task untrained"; done
        echo "masked valid"; echo "masked test" ;;
      vectors) echo "vectors bf16"; echo "vectors fp32" ;;
      *-right) finetune "$stage" "$encoder" right "${semantic% *}" ;;
      *) echo "There is no stage \"$stage\". Known: frozen gte-right gte-wrong box-right box-wrong, the last four also with -rest, NAME-right NAME-right-rest, NAME-within-right NAME-tensor-right NAME-raw-right, gte-words box-words, quick vectors." >&2; exit 2 ;;
    esac
  done
}
jobs=$(queue "$@") || exit 2
echo "$jobs" | xargs -P "${WORKERS:-5}" -I {} bash -c '{}'
grep -h "the fused kernels" "$out"/logs/*.log && echo "Some shapes went without fused kernels: slower, but right."
grep -l "Error\|Traceback" "$out"/logs/*.log
cd "$out" && find . \( -name cache -o -name model -o -name checkpoints \) -prune -o \( -name '*.json' -o -name '*.jsonl' -o -name '*.log' \) -print | tar -cJf probe-gpu.tar.xz -T -
echo "$(($(date +%s) - BEGAN)) s in all, $(du -k probe-gpu.tar.xz | cut -f1) KiB"
