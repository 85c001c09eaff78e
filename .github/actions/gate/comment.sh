#!/usr/bin/env bash
# Writes the verdict into a comment on the pull request, the same one after each run.
#
# What a comment cannot say is in the job's summary. So a token that may not write, as for a
# pull request from a fork, is a warning.
# shellcheck disable=SC2154 # action.yml sets the variables GATE_*
set -euo pipefail

if [ -z "$GATE_pull" ] || [ ! -f "$GATE_reports/gate.md" ]; then
	echo "::notice title=benchgate::no comment: this is no pull request, or there is no report"
	exit 0
fi
marker="<!-- benchgate: $GATE_artifact -->"
comments=repos/$GITHUB_REPOSITORY/issues
post() {
	local id to method=POST
	id=$(gh api --paginate "$comments/$GATE_pull/comments?per_page=100" | jq -r --arg marker "$marker" \
		'.[] | select(.user.login == "github-actions[bot]" and (.body | startswith($marker))) | .id') || return
	id=${id%%$'\n'*}
	to=$comments/$GATE_pull/comments
	if [ -n "$id" ]; then
		method=PATCH
		to=$comments/comments/$id
	fi
	# GitHub takes 65,536 characters.
	{
		echo "$marker"
		LC_ALL=C awk '{ n += length($0) + 1 } n < 60000' "$GATE_reports/gate.md"
	} | jq -Rs '{body: .}' | gh api --silent --method "$method" "$to" --input -
}
if ! post; then
	echo "::warning title=benchgate::no comment could be written: the job needs the permission pull-requests: write"
fi
