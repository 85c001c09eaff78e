#!/usr/bin/env bash
# Runs the gate with the inputs of the action, and shows its verdict. What cannot be
# decided is a warning.
# shellcheck disable=SC2154 # action.yml sets the variables GATE_*
set -euo pipefail

args=()
for flag in base base_exact bench skip skip_pkg C cpu budget benchtime slower metrics cache; do
	value=GATE_$flag
	if [ -n "${!value}" ]; then args+=("-${flag//_/-}=${!value}"); fi
done
reports=$(mktemp -d "$RUNNER_TEMP/benchgate-reports.XXXXXX")
echo "reports=$reports" >>"$GITHUB_OUTPUT"
args+=("-markdown=$reports/gate.md" "-json=$reports/gate.json" "-junit=$reports/gate.xml"
	"-benchfmt=$reports/gate.txt" "-profiles=$reports/profiles")
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
"$GATE_bin/benchgate" "${args[@]}" || status=$?
if [ -f "$reports/gate.md" ]; then cat "$reports/gate.md" >>"$GITHUB_STEP_SUMMARY"; fi
if [ "$status" = 3 ]; then
	echo "::warning title=benchgate::some benchmarks are not decided; see the job's summary"
	status=0
fi
exit "$status"
