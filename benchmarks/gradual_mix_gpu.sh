#!/usr/bin/env bash
# Mixes that open or close while a model is pruned to 10 %, beside a fixed one and none: SST-2, five seeds.
#   benchmarks/gradual_mix_gpu.sh MODEL DATA OUT
# MODEL is an encoder's folder (gte-small), DATA the unpacked sst2. A stopped command goes on. OUT/page.html has the
# scores with their intervals, and the shares of the layers over training.
set -eu
model=$1 data=$2 out=$3
python=${PYTHON:-python}
$python -m bermo run gpu/gradual-mix --out "$out" "model.backbone=$model" "data.folder=$data"
$python -m bermo report "$out" --out "$out/page.html"
