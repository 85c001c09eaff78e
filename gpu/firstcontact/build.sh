#!/bin/bash
# build.sh DIR builds what run.sh needs on a machine with a GPU, without Go and without a
# network: DIR is then copied there. It has at most 60 MiB.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0
go build -trimpath -ldflags '-s -w' -o "$out/bench" ./cmd/bench
mkdir -p "$out/kernels"
go test -c -trimpath -ldflags '-s -w' -o "$out/kernels/kernels.test" ./kernels
go test -c -trimpath -ldflags '-s -w' -o "$out/trials.test" ./gpu/gpuslices
go test -c -trimpath -ldflags '-s -w' -o "$out/gpu.test" ./gpu
cp -r kernels/testdata "$out/kernels/"
CGO_ENABLED=1 go run ./native/build -o "$out/dist"
cp gpu/firstcontact/run.sh gpu/firstcontact/*.py "$out/"
size=$(du -sm "$out" | cut -f1)
echo "$out: $size MiB"
test "$size" -le 60
