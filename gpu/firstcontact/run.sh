#!/bin/bash
# run.sh RESULTS [SECONDS] finds out on a machine with a GPU what can be known in SECONDS,
# 1,500 if it is not said: cheap and decisive steps first, none longer than 9 minutes. What
# a step says is in RESULTS/NAME.txt while it runs, and its end at once in RESULTS/page.md.
# Without a GPU the page says of each step that it did not run, or that the interpreter did.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
results=$(mkdir -p "$1" && cd "$1" && pwd)
total=${2:-1500}
cd "$here" || exit 2
gpu=$(REWEIGHT_GPU=unchecked timeout 60 ./bench info | sed -n 's/^GPU  *//p')
case ${gpu:-none} in none*) found= ;; *) found=1 ;; esac
if [ "$found" ]; then echo "The GPU: $gpu."; else echo "No GPU: ${gpu:-unknown}. Nothing below is a measurement."; fi >"$results/page.md"
printf '\n| step | result | s |\n|---|---|---|\n' >>"$results/page.md"

step() { # step NAME SECONDS COMMAND...
	local name=$1 limit=$2 left=$((total - SECONDS)) begin=$SECONDS status=0 result
	shift 2
	if [ ! "$found" ] && [ "$name" != machine ] && [ "$name" != info ] && [ "$name" != trials ] && [ "$name" != rows ]; then
		echo "| $name | not run: no GPU | 0 |" | tee -a "$results/page.md"
		return
	fi
	if [ "$left" -lt "$limit" ]; then limit=$left; fi
	if [ "$limit" -lt 1 ]; then
		echo "| $name | no time left | 0 |" >>"$results/page.md"
		return
	fi
	timeout -k 5 "$limit" "$@" >"$results/$name.txt" 2>&1 </dev/null || status=$?
	case $status in
	0)
		result=passed # the tests say what they ran on
		case $* in *.test\ *) grep -q 'testgpu: runs on' "$results/$name.txt" || result="ran on the interpreter: no GPU" ;; esac
		;;
	124 | 137) result="cut off after $limit s" ;;
	127) result="not there" ;;
	*) result="failed ($status)" ;;
	esac
	echo "| $name | $result | $((SECONDS - begin)) |" | tee -a "$results/page.md"
}

step machine 30 nvidia-smi
step info 180 ./bench info       # every kernel is compiled and checked
export REWEIGHT_GPU=unchecked # from here on: the tests say more of a wrong kernel
export CUDA_CACHE_PATH=$results/cache
mkdir -p "$CUDA_CACHE_PATH"
step cold 120 ./trials.test -test.v -test.run TestTrials -rounds 1
step warm 120 ./trials.test -test.v -test.run TestTrials -rounds 1
step trials 120 ./trials.test -test.v -test.run TestTrials -rounds $([ "$found" ] && echo 500 || echo 20)
step rows 180 ./gpu.test -test.v -test.run 'TokenStats|RowGradient'
step quick 120 ./bench run -isa cuda -rows 512 -vocab 151936 -kernel token_stats,row_gradient
step teams 240 bash -c 'for rows in 32 128 264 396 400 1024; do ./bench run -isa cuda -rows $rows -vocab 151936 -kernel token_stats,row_gradient || exit; done'
export PYTHONPATH=$results/python
step python 60 python3 -m pip install -q --no-index --no-deps --target "$PYTHONPATH" dist/*.whl
step graph 120 python3 graph.py
step streams 120 python3 streams.py
step rivals 300 python3 rivals.py
step speed 540 ./bench run -isa cuda
for kernel in token_stats row_gradient; do
	step counters_$kernel 60 ncu --section SpeedOfLight --section SchedulerStats --section WarpStateStats --launch-count 4 \
		--kernel-name "regex:$kernel" ./bench run -isa cuda -rows 8192 -vocab 151936 -kernel $kernel
done
for tool in memcheck racecheck synccheck initcheck; do
	step $tool 90 compute-sanitizer --tool $tool --error-exitcode 9 ./trials.test -test.v -test.run TestTrials -rounds 2
done
step racecheck_rows 120 compute-sanitizer --tool racecheck --error-exitcode 9 ./gpu.test -test.run 'Turns|Teams'
cd kernels || exit 2
step parity 540 ./kernels.test -test.v -gpu all -test.timeout 9m
for name in info quick teams graph streams rivals counters_token_stats counters_row_gradient speed; do
	if [ -s "$results/$name.txt" ]; then printf '\n## %s\n\n```\n%s\n```\n' $name "$(tail -80 "$results/$name.txt")" >>"$results/page.md"; fi
done
