#!/bin/sh
# build.sh [DIR] makes DIR/*.ptx.gz from the *.cu beside this script; DIR is this folder
# if it is not given. It needs Debian's clang-14, or $CLANG (another version gives other text), and
# no CUDA toolkit. TestBuild compares the files with what this makes.
#
#   -ffp-contract=off   a product and a sum are rounded each, as on the CPU
#   sm_80, PTX 7.0      the A100 and later, drivers since CUDA 11.0
#   short pointers      addresses of shared memory have 32 bits
# Subnormal numbers are kept: flushing them is off unless it is asked for.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
text=$(mktemp)
trap 'rm -f "$text"' EXIT
for source in *.cu; do
	${CLANG:-clang-14} -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib -O3 -Wall -Werror -ffp-contract=off \
		-fcuda-short-ptr -Xclang -mllvm -Xclang --nvptx-short-ptr -Xclang -target-feature -Xclang +ptx70 \
		-S "$source" -o "$text"
	gzip -9n <"$text" >"$out/${source%.cu}.ptx.gz"
done
