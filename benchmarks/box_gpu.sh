#!/usr/bin/env bash
# A better encoder for the box: today's box goes on, taught by a sentence encoder, and is judged by fine-tuning.
#   benchmarks/box_gpu.sh MODELS DATA OUT [MINUTES [STAGE...]]
# MODELS holds gte and mpnet, DATA the unpacked sst2, cola, rte, mrpc, stsb and wikipedia/*.xz. Stages:
#   now     the box of the package, fine-tuned
#   gte     each layer taught by one of gte-small's, words and rows; then fine-tuned
#   mpnet   the same by all-mpnet-base-v2
#   last    words of gte-small's last layer alone
#   rows    rows of gte-small alone
#   plain   masked words alone, to see what the teacher gives
#   order   StructBERT's order of words and sentences for a quarter of MINUTES, then taught by gte-small for all of them
#   electra replaced words are detected for MINUTES (judged as electra-first), then it is taught by gte-small for half of
#           MINUTES, which gives it a masked-LM head again
#   both    the same, but replaced words are detected beside gte-small's vectors (judged as both-first), then a quarter
#   detect  replaced words are detected for MINUTES (detect-first), then a masked-LM head alone learns for an eighth
#   detect-taught   the same, but beside gte-small's vectors
#   pairs   fine-tuned on the pairs of MNLI's dev file; that encoder (pairs-1) and its mean with the start (pairs-0.5)
# Stages run side by side. OUT/STAGE/model is the folder to pack, OUT/box.json has a row for each seed.
# BOX_START names an encoder to go on from, or to fine-tune, in place of the box.
# BOX_MORE adds options to every command, such as "--device cpu --batch-size 8" for a trial on a CPU.
# BOX_TASKS='rte|mrpc' judges by these alone.
# BOX_RATES="1e-4 3e-4" fine-tunes at each of these rates in place of the default; rows are then named STAGE@RATE.
set -u
models=$1 data=$2 out=$3 minutes=${4:-8}
[ $# -gt 4 ] && stages="${*:5}" || stages="now gte mpnet"
more=${BOX_MORE:-} tune=${BOX_TUNE:---precision bf16} rates=${BOX_RATES:-default}
pretrain=${BOX_PRETRAIN:---minutes $minutes --precision bf16}
first=${BOX_PRETRAIN:---minutes $(awk "BEGIN { print $minutes / 4 }") --precision bf16}
eighth=${BOX_PRETRAIN:---minutes $(awk "BEGIN { print $minutes / 8 }") --precision bf16}
half=${BOX_PRETRAIN:---minutes $(awk "BEGIN { print $minutes / 2 }") --precision bf16}
python=${PYTHON:-python}
work=${BOX_WORK:-$out/work}
mkdir -p "$out" "$work"
export OMP_NUM_THREADS=1 BERMO_CACHE=$work/cache

taught() { # stage, options: go on from the box, or from the model that the options name
  local stage=$1; shift
  $python -m bermo pretrain --model "${BOX_START:-box}" --text "$data"/wikipedia/*.xz --half --looks 5 --checkpoint-minutes 2 \
    "$@" $more --out "$out/$stage" > "$out/$stage.log" 2>&1
}

judged() { # stage, model: three seeds on five tasks, at each rate
  local stage=$1 model=$2 task rate name
  for rate in $rates; do
    name=$stage; [ "$rate" = default ] || name=$stage@$rate
    for task in "sst2 3" "cola 10" "rte 10" "mrpc 10" "stsb 10"; do
      set -- $task
      [[ $1 =~ ^(${BOX_TASKS:-.*})$ ]] || continue
      [ "$rate" = default ] && set -- "$@" "" || set -- "$@" "--lr $rate"
      $python -m bermo train --model "$model" --task "$1" --data "$data/$1" --epochs "$2" $3 --seeds 1,2,3 --together 3 \
        --checkpoint-minutes 100 --keep none $tune $more --out "$work/$name-$1" > "$out/$name-$1.log" 2>&1 &
    done
    wait
  done
}

stage() {
  case $1 in
    now) judged now "${BOX_START:-box}"; return ;;
    gte) taught gte $pretrain --teacher "$models/gte" ;;
    mpnet) taught mpnet $pretrain --teacher "$models/mpnet" ;;
    last) taught last $pretrain --teacher "$models/gte" --teach-layers last ;;
    rows) taught rows $pretrain --teacher "$models/gte" --teach-words 0 ;;
    plain) taught plain $pretrain ;;
    order)
      taught order-first $first --objective structbert
      taught order $pretrain --model "$out/order-first/model" --teacher "$models/gte" ;;
    electra)
      taught electra-first $pretrain --objective electra --lr 5e-4
      (judged electra-first "$out/electra-first/model") &
      taught electra $half --model "$out/electra-first/model" --teacher "$models/gte" ;;
    both)
      taught both-first $pretrain --objective electra --teacher "$models/gte" --lr 5e-4
      (judged both-first "$out/both-first/model") &
      taught both $first --model "$out/both-first/model" --teacher "$models/gte" --lr 5e-4 ;;
    detect | detect-taught)
      [ "$1" = detect ] && set -- "$1" || set -- "$1" --teacher "$models/gte"
      taught "$1-first" $pretrain --objective electra --lr 5e-4 "${@:2}"
      taught "$1" $eighth --model "$out/$1-first/model" --only-head ;;
    pairs)
      $python -m bermo train --model "${BOX_START:-box}" --train "$data/mnli_dev_matched/dev_matched.tsv" --label gold_label \
        --mix none --epochs 3 --lr 2e-4 --seeds 1, --checkpoint-minutes 100 $tune $more --out "$work/mnli" > "$out/mnli.log" 2>&1
      for share in 0.5 1; do
        $python benchmarks/box_soup.py "$work/mnli/model" $share "$out/pairs-$share" ${BOX_START:-}
        judged "pairs-$share" "$out/pairs-$share" &
      done
      wait; return ;;
  esac
  judged "$1" "$out/$1/model"
}

for name in $stages; do (stage "$name"; echo "$name: $(date +%T)") & done
wait
$python benchmarks/box_rows.py "$work" "$out/box.json"
