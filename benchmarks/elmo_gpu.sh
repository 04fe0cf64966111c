#!/usr/bin/env bash
# A biLM and a Transformer of like size on the same text and for the same minutes: what does each layer know?
# OUT/elmo.json has a row for each encoder, OUT/elmo.md the table, OUT/look the measures for `bermo report`.
#   bash benchmarks/elmo_gpu.sh TEXT SENSES MINUTES [OUT [OPTION...]]
# SENSES is the folder of SemCor and its test sets, or "" for none. Options are those of pretrainings.py, such as
# --seeds 1; TINY=1 tries all of it on a CPU in seconds.
set -eu
text=$1 senses=$2 minutes=$3 out=${4:-runs/elmo-layers}
python=${PYTHON:-python3} here=$(dirname "$0")
code=0
$python "$here/pretrainings.py" elmo --text "$text" ${senses:+--senses "$senses"} --minutes "$minutes" --out "$out" \
  ${TINY:+--tiny} "${@:5}" || code=$?
$python "$here/pretraining_tables.py" "$out/elmo.json" "$out/elmo.md"
exit $code
