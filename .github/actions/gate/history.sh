#!/usr/bin/env bash
# Adds what this run measured to the history on a branch of the repository, and draws the history there.
#
# Another job may push at the same time: then the lines are added once more, to what is there by then.
# shellcheck disable=SC2154 # action.yml sets the variables GATE_*
set -euo pipefail

lines=$GATE_reports/history.jsonl
if [ ! -s "$lines" ]; then
	echo "::warning title=benchgate::nothing is added to the history: nothing was measured to its end, of a commit"
	exit 0
fi
case $GATE_artifact in
*/* | .*)
	echo "::error title=benchgate::the history has a file of the name of the artifact, $GATE_artifact"
	exit 2
	;;
esac
remote=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY
branch=refs/heads/$GATE_history
git check-ref-format "$branch"
# In the environment, because command lines can be seen.
GIT_CONFIG_VALUE_0="AUTHORIZATION: basic $(printf 'x-access-token:%s' "$GATE_token" | base64 | tr -d '\n')"
export GIT_CONFIG_VALUE_0 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="http.$GITHUB_SERVER_URL/.extraheader"

for _ in 1 2 3 4 5; do
	cd "$(mktemp -d "$RUNNER_TEMP/benchgate-history.XXXXXX")"
	git init --quiet
	there=0
	git ls-remote --exit-code "$remote" "$branch" >/dev/null || there=$?
	case $there in
	0)
		git fetch --quiet --depth=1 "$remote" "$branch"
		git checkout --quiet --detach FETCH_HEAD
		;;
	2) ;; # there is no such branch yet
	*) exit "$there" ;;
	esac
	cat "$lines" >>"$GATE_artifact.jsonl"
	"$GATE_bin/benchgate" trend -html "$GATE_artifact.html" "$GATE_artifact.jsonl"
	git add -- "$GATE_artifact.jsonl" "$GATE_artifact.html"
	git -c user.name='github-actions[bot]' -c user.email='41898282+github-actions[bot]@users.noreply.github.com' \
		commit --quiet -m "benchgate: $GITHUB_SHA"
	if git push --quiet "$remote" "HEAD:$branch"; then exit 0; fi
	sleep 2
done
echo "::error title=benchgate::the history could not be pushed to $GATE_history"
exit 1
