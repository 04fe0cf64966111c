#!/usr/bin/env bash
# Each habit of pretraining against the plain run: the same text and seeds, as many steps as fit into the same minutes
# on one GPU. OUT/habits.json has a row for each encoder, OUT/habits.md the table.
#   bash benchmarks/habits_gpu.sh TEXT MINUTES [OUT [OPTION...]]
# Options are those of pretrainings.py, such as --seeds 1 --arms plain,lamb; TINY=1 tries all of it on a CPU in seconds.
set -eu
text=$1 minutes=$2 out=${3:-runs/habits}
python=${PYTHON:-python3} here=$(dirname "$0")
code=0
$python "$here/pretrainings.py" habits --text "$text" --minutes "$minutes" --out "$out" ${TINY:+--tiny} "${@:4}" || code=$?
$python "$here/pretraining_tables.py" "$out/habits.json" "$out/habits.md"
exit $code
