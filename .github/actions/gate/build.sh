#!/usr/bin/env bash
# Builds the gate, and names the cache of what it builds of the base.
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

if ! base=$(git -C "${GATE_C:-.}" rev-parse --quiet --verify --end-of-options "$GATE_base^{commit}"); then
	echo "::error title=benchgate::the checkout does not have the base; give actions/checkout fetch-depth: 0"
	exit 2
fi
# Builds of another Go, of another gate or of other packages have another name.
program=$({ go version; echo "$GATE_C $GATE_packages"; cat "$bin"/benchgate*; } | git hash-object --stdin)
{
	echo "bin=$bin"
	echo "key=benchgate-$RUNNER_OS-$RUNNER_ARCH-$base-$program"
} >>"$GITHUB_OUTPUT"
