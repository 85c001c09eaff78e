#!/usr/bin/env bash
# Builds the gate, runs it with the inputs of the action, and shows its verdict. What cannot
# be decided is a warning.
#
# The gate is built from the files that came with the action, into a directory of its own.
# Settings of the repository that is to be judged do not count here.
# shellcheck disable=SC2154 # action.yml sets the variables GATE_*
set -euo pipefail

bin=$(mktemp -d "$RUNNER_TEMP/benchgate.XXXXXX")
(
	cd "$GITHUB_ACTION_PATH/../../.."
	GOENV=off GOFLAGS='' GOWORK=off GOTOOLCHAIN=auto GOOS='' GOARCH='' GOEXPERIMENT='' CGO_ENABLED=0 \
		go build -trimpath -buildvcs=false -o "$bin/" ./cmd/benchgate
)

args=()
for flag in base base_exact bench skip skip_pkg C cpu budget benchtime slower metrics; do
	value=GATE_$flag
	if [ -n "${!value}" ]; then args+=("-${flag//_/-}=${!value}"); fi
done
reports=$(mktemp -d "$RUNNER_TEMP/benchgate-reports.XXXXXX")
printf '%s\n' "bin=$bin" "reports=$reports" >>"$GITHUB_OUTPUT"
args+=("-markdown=$reports/gate.md" "-json=$reports/gate.json" "-junit=$reports/gate.xml"
	"-benchfmt=$reports/gate.txt" "-profiles=$reports/profiles")
if [ -n "$GATE_history" ]; then args+=("-history=$reports/history.jsonl"); fi
if [ -n "$GATE_packages" ]; then
	read -r -d '' -a packages <<<"$GATE_packages" || true # words of all lines
	args+=("${packages[@]}")
fi
if [ -n "$GATE_args" ]; then
	args+=(--)
	while IFS= read -r arg; do
		if [ -n "$arg" ]; then args+=("$arg"); fi
	done <<<"$GATE_args"
fi

status=0
"$bin/benchgate" "${args[@]}" || status=$?
if [ -f "$reports/gate.md" ]; then cat "$reports/gate.md" >>"$GITHUB_STEP_SUMMARY"; fi
if [ "$status" = 3 ]; then
	echo "::warning title=benchgate::some benchmarks are not decided; see the job's summary"
	status=0
fi
exit "$status"
