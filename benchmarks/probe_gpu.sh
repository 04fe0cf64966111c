#!/usr/bin/env bash
# What probing must show, on one GPU; only JSON and logs come back, in OUT/probe-gpu-STAGES.tar.xz.
#   benchmarks/probe_gpu.sh MODEL DATA OUT STAGE…
# MODEL: gte-small's folder. DATA: a folder with xprobe_en/, sst2/, cola/, rte/ and wikitext103_valid_test/. The same command goes on.
# STAGE, in the order of what matters; estimates for an H200 at 3 ms a step of gte-small, all processes together:
#   quick            vectors.py, WikiText-103, and the untrained box on SST-2, CoLA and RTE          about 2 min
#   frozen           nine tasks × all layers with controls, gte-small and the box                    about 2 min
#   gte-right        five semantic tasks, plain and mix, 5 seeds, 3 epochs: 64,000 steps             about 3.2 min
#   gte-wrong        the same with capitals kept on the uncased vocabulary                           about 3.2 min
#   box-right box-wrong                                                                              about 1.6 min each
#   gte-right-rest … box-wrong-rest: the other four tasks, 44,500 steps                              about 2.2 min each
# FINETUNE holds further changes of the fine-tuned stages, such as "train.epochs=1"; SEEDS, LIMIT (frozen) and COUNT (vectors.py) make all smaller.
set -u
model=$1 data=$2 out=$3; shift 3
python=${PYTHON:-python} xprobe=$data/xprobe_en fields=${FINETUNE:-} seeds=${SEEDS:-63,77,9,96,39}
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1 PYTHONPATH=.
mkdir -p "$out"
semantic=tense,subject-number,object-number,odd-man-out,coordination-inversion
rest=sentence-length,word-content,tree-depth,bigram-shift

quick() {
  $python benchmarks/vectors.py "$model" --count "${COUNT:-100000}" --precision bf16 > "$out/vectors-bf16.json" 2> "$out/vectors.log"
  $python benchmarks/vectors.py "$model" --count "${COUNT:-100000}" > "$out/vectors-fp32.json" 2>> "$out/vectors.log"
  for part in valid test; do
    $python benchmarks/masked.py "$data/wikitext103_valid_test/wiki.$part.tokens" --rows "${ROWS:-100000}" --out "$out/masked-$part.json" > "$out/masked-$part.log" 2>&1
  done
  for task in sst2 cola rte; do
    for kind in trained untrained; do
      $python -m bermo train --task $task --data "$data/$task" --lr 3e-4 --precision bf16 --epochs "${EPOCHS:-3}" --seeds 9,25 \
        $([ $kind = untrained ] && echo --untrained) --out "$out/box-$task-$kind" > "$out/box-$task-$kind.log" 2>&1 &
    done
  done
  wait
}

frozen() {
  for pair in "gte $model" "box box"; do
    set -- $pair
    $python -m bermo probe --model "$2" --data "$xprobe" --batch-size 256 ${LIMIT:+--limit $LIMIT} --out "$out/frozen-$1" > "$out/frozen-$1.log" 2>&1 &
  done
  wait
}

finetune() {  # stage encoder case tasks: every task and arm is a process, then one reads all and judges
  local name=$1 encoder=$2 tasks=$4 case="" flags=""
  if [ "$3" = wrong ]; then case="data.lowercase=off data.max_unknown=1" flags="--lowercase off --max-unknown 1"; fi
  for task in ${tasks//,/ }; do
    for arm in plain mix; do
      $python -m bermo run paper/probing "model.backbone=$encoder" "data.folder=$xprobe" $case $fields --arms "$task-$arm" --seeds "$seeds" \
        --out "$out/$name" > "$out/$name-$task-$arm.log" 2>&1 &
    done
  done
  wait
  $python -m bermo probe --protocol finetune --model "$encoder" --data "$xprobe" --tasks "$tasks" --seeds "$seeds" $flags --out "$out/$name" $fields \
    > "$out/$name.log" 2>&1
  tail -n 20 "$out/$name.log"
}

for stage in "$@"; do
  began=$SECONDS
  case $stage in
    quick | frozen) $stage ;;
    gte-right | gte-wrong) finetune "$stage" "$model" "${stage#*-}" $semantic ;;
    box-right | box-wrong) finetune "$stage" box "${stage#*-}" $semantic ;;
    gte-right-rest | gte-wrong-rest) s=${stage%-rest}; finetune "$stage" "$model" "${s#*-}" $rest ;;
    box-right-rest | box-wrong-rest) s=${stage%-rest}; finetune "$stage" box "${s#*-}" $rest ;;
    *) echo "There is no stage \"$stage\". Known: quick frozen gte-right gte-wrong box-right box-wrong, the last four also with -rest." >&2; exit 2 ;;
  esac
  echo "$stage: $((SECONDS - began)) s" | tee -a "$out/seconds.log"
done
(cd "$out" && find . \( -name cache -o -name model -o -name checkpoints \) -prune -o \( -name '*.json' -o -name '*.log' \) -print | tar -cJf "probe-gpu-$(echo "$@" | tr ' ' +).tar.xz" -T -)
