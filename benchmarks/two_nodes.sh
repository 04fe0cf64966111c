#!/usr/bin/env bash
# sudo bash benchmarks/two_nodes.sh OUT --task box/tense --device cpu …: bermo train on two nodes of two processes.
# The nodes are two network namespaces of this Linux machine that a cable joins; OUT.a.log and OUT.b.log are theirs.
set -eu
out=$1
shift
python=${PYTHON:-.venv/bin/python}
ip netns add bermo-a
ip netns add bermo-b
trap 'ip netns del bermo-a; ip netns del bermo-b' EXIT
ip link add cable-a netns bermo-a type veth peer name cable-b netns bermo-b
ip -n bermo-a addr add 10.77.0.1/24 dev cable-a
ip -n bermo-b addr add 10.77.0.2/24 dev cable-b
rank=0
for node in a b; do
  ip -n bermo-$node link set lo up
  ip -n bermo-$node link set cable-$node up
done
for node in a b; do
  GLOO_SOCKET_IFNAME=cable-$node ip netns exec bermo-$node "$python" -m torch.distributed.run \
    --nnodes 2 --node-rank $rank --nproc-per-node 2 --master-addr 10.77.0.1 --master-port 29577 \
    -m bermo train "$@" --out "$out" > "$out.$node.log" 2>&1 &
  rank=$((rank + 1))
done
wait
