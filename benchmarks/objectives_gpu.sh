#!/usr/bin/env bash
# Every objective of pretraining at the box's size and at equal compute: masked words, whole words, phrases, spans,
# StructBERT, ELECTRA, ELMo, XLNet, and masked words with an inner mix. Each of three seeds is judged by the likelihood of
# single held-out tokens, SST-2, CoLA, MRPC, STS-B and two probes. OUT/objectives.json has a row for each encoder,
# OUT/objectives.md the table with a verdict for each.
#   bash benchmarks/objectives_gpu.sh TEXT DATA MINUTES [OUT [OPTION...]]
# DATA holds the unpacked sst2, cola, mrpc and stsb. Options are those of pretrainings.py, such as --workers 8 or
# --arms mlm,xlnet; the same command goes on where it stopped; TINY=1 tries all of it on a CPU in seconds.
set -eu
text=$1 data=$2 minutes=$3 out=${4:-runs/objectives}
python=${PYTHON:-python3} here=$(dirname "$0")
code=0
$python "$here/pretrainings.py" objectives --text "$text" --data "$data" --minutes "$minutes" --out "$out" \
  ${TINY:+--tiny} "${@:5}" || code=$?
$python "$here/pretraining_tables.py" "$out/objectives.json" "$out/objectives.md"
exit $code
