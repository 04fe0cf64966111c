#!/usr/bin/env bash
# Small students of gte-small on SST-2: a dense teacher and truncations without one, then students of 2 to 12 layers, whole and
# pruned by heads and neurons, side by side on one GPU; then shrunk, timed on the GPU, and packed to be taken home.
#   benchmarks/ship_gpu.sh MODEL DATA OUT [TEACHER]     TEACHER: a finished run that teaches; without it one is trained here
#   SECONDS_LEFT=520 (all but the packing), TIMES=5 (rows of the larger training file), EPOCHS=5; a trial elsewhere: DEVICE=cpu PRECISION=fp32
set -u
model=$1 data=$2 out=$3 teacher=${4:-$3/dense}
export BERMO_CACHE=$out/cache OMP_NUM_THREADS=1 PYTHONPATH=.
deadline=${SECONDS_LEFT:-520} epochs=${EPOCHS:-5}
students_end=$((deadline - 80))
mkdir -p "$out/small"

train() {  # name, options…: a run in $out/name that is told to stop, and saves, when the time for students is over
  local name=$1 left=$((students_end - SECONDS)); shift
  [ $left -gt 0 ] || { echo "$name: no time left"; return; }
  timeout -k 20 -s TERM $left python -m bermo train --task sst2 --mix none --precision "${PRECISION:-bf16}" \
    --seeds 9, --checkpoint-minutes 100 --out "$out/$name" "$@" > "$out/$name.log" 2>&1
  echo "$name: $? after $SECONDS s"
}
plain="--data $data/sst2 --freeze-embeddings"                                # 3 epochs, batch 32, rate 3e-5
taught="$plain --teacher $teacher"
# Many rows, many steps: batches of 128 fill the card, and the rate goes up with them (3e-5 · √4, and shallow students bear 1e-4).
# The variants' labels are unknown, so the teacher's answers are all there is to learn. Pruning ends early, to leave time for repair.
more="--data $out/more --teacher $teacher --distill-hard 0 --distill-soft 1 --batch-size 128 --lr 1e-4 --epochs $epochs"
units="--prune heads-and-neurons --rank size --final-warmup 3"

for layers in 4 3 2; do
  python - "$model" "$layers" "$out/first-$layers" <<'CUT'
import sys
from transformers import AutoModel, AutoTokenizer
model, layers, out = sys.argv[1:]
AutoModel.from_pretrained(model, num_hidden_layers=int(layers)).save_pretrained(out)
AutoTokenizer.from_pretrained(model).save_pretrained(out)
CUT
done > "$out/cut.log" 2>&1
[ "$teacher" = "$out/dense" ] && train dense --model "$model" $plain &
teaching=$!
for layers in 4 3 2; do train "alone-$layers" --model "$out/first-$layers" $plain & done
{ python benchmarks/augment.py --model "$model" --data "$data/sst2" --times "${TIMES:-5}" --out "$out/more" > "$out/augment.log" 2>&1
  train tokens --model "$out/first-2" --data "$out/more" --epochs 0.001 --batch-size 128; } &   # fills the cache of tokens
telling=$!
wait $teaching $telling
train answers $more --student-layers 1 --epochs 0.001                             # fills the cache of the teacher's answers

train taught-4 $taught --student-layers 1,2,3,4 &
train taught-2 $taught --student-layers 1,2 &
train four $more --freeze-embeddings --student-layers 1,2,3,4 &
train three $more --freeze-embeddings --student-layers 1,2,3 &
train two $more --freeze-embeddings --student-layers 1,2 &
train three-hidden $more --freeze-embeddings --student-layers 1,2,3 --distill-hidden 1 &
train three-words $more --student-layers 1,2,3 &
train two-words-50 $more --student-layers 1,2 $units --density 0.5 &
train six-35 $more --freeze-embeddings --student-layers 1,2,3,4,5,6 $units --density 0.35 &
train four-60 $more --freeze-embeddings --student-layers 1,2,3,4 $units --density 0.6 &
train three-60 $more --freeze-embeddings --student-layers 1,2,3 $units --density 0.6 &
train two-50 $more --freeze-embeddings --student-layers 1,2 $units --density 0.5 &
train twelve-25 $more --freeze-embeddings --student-layers 1,2,3,4,5,6,7,8,9,10,11,12 $units --scope global --density 0.25 --epochs 3 &
wait

cut -f 1 "$data/sst2/train.tsv" | tail -n +2 > "$out/words.txt"
small() {  # name: what it no longer uses is deleted; the words of the training texts stay where words were trained
  local name=$1 words=; shift
  case $name in *words*) words="--vocabulary $out/words.txt";; esac
  [ -d "$out/$name/seed-9/model" ] || return
  python -m bermo shrink "$out/$name/seed-9/model" --out "$out/small/$name" $words > "$out/small-$name.log" 2>&1
}
for name in three-words two-words-50 six-35 four-60 three-60 two-50 twelve-25; do small $name & done
wait
echo "shrunk after $SECONDS s"
candidates=
for name in four-60 three-60 two-50 twelve-25; do [ -d "$out/small/$name" ] && candidates="$candidates $out/small/$name"; done
[ $SECONDS -lt "$deadline" ] && timeout -k 5 $((deadline - SECONDS)) python -m bermo bench "$teacher" $candidates --device "${DEVICE:-cuda}" --precision fp32,fp16 \
  --batch 1,128 --lengths 32,128 --rounds 3 --threads 2 --data "$data/sst2/dev.tsv" --out "$out/bench" > "$out/bench.log" 2>&1
echo "bench: $? after $SECONDS s"
python benchmarks/ship_pack.py --runs "$out" --model "$model" --out "$out/packed"
echo "packed after $SECONDS s"
