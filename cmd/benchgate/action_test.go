package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

const actionDir = "../../.github/actions/gate"

// An action is what the tests need of action.yml: the defaults of its inputs, and its scripts.
type action struct {
	defaults map[string]string
	scripts  map[string]script // by the name of the file
}

// A script is what a step runs, when, and with which variables.
type script struct {
	run, when string
	env       map[string]string
}

// readAction reads the lines of action.yml that have the form of this one file.
func readAction(t *testing.T) action {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(actionDir, "action.yml")))
	inputs, runs, _ := strings.Cut(string(text), "\nruns:\n")
	a := action{defaults: map[string]string{}, scripts: map[string]script{}}
	for _, m := range regexp.MustCompile(
		`(?m)^  ([a-z_]+):\n(?:    .*\n|      .*\n)*?    default: (.*)$`).FindAllStringSubmatch(inputs, -1) {
		a.defaults[m[1]] = strings.Trim(m[2], `"`)
	}
	for step := range strings.SplitSeq(runs, "\n    - name: ") {
		run := regexp.MustCompile(`(?m)^      run: (bash "\$GITHUB_ACTION_PATH/(\w+\.sh)")$`).FindStringSubmatch(step)
		if run == nil {
			if strings.Contains(step, "run:") {
				t.Errorf("this step does not run a file:\n%s", step)
			}
			continue
		}
		s := script{run: run[1], env: map[string]string{}}
		if m := regexp.MustCompile(`(?m)^      if: (.*)$`).FindStringSubmatch(step); m != nil {
			s.when = m[1]
		}
		for _, m := range regexp.MustCompile(`(?m)^        (\w+): (.*)$`).FindAllStringSubmatch(step, -1) {
			s.env[m[1]] = m[2]
		}
		a.scripts[run[2]] = s
	}
	if len(a.scripts) != 3 {
		t.Fatalf("action.yml has the scripts %v, want 3", a.scripts)
	}
	return a
}

// input is an expression that stands for the value of an input.
var input = regexp.MustCompile(`^\$\{\{ inputs\.(\w+) \}\}$`)

// TestActionInputs: each flag that another module's gate has is an input, each
// input reaches a script, and none is pasted into one.
func TestActionInputs(t *testing.T) {
	a := readAction(t)
	var flags []string
	var help bytes.Buffer
	run(t.Context(), []string{"-h"}, &help, &help)
	for _, m := range regexp.MustCompile(`(?m)^  -([\w-]+)`).FindAllStringSubmatch(help.String(), -1) {
		if !slices.Contains([]string{"json", "junit", "markdown", "benchfmt", "profiles"}, m[1]) {
			flags = append(flags, strings.ReplaceAll(m[1], "-", "_"))
		}
	}
	if len(flags) == 0 {
		t.Fatalf("no flags in the help:\n%s", &help)
	}
	used := map[string]bool{"comment": true} // by a condition alone
	for _, s := range a.scripts {
		for name, value := range s.env {
			if m := input.FindStringSubmatch(value); m != nil {
				used[m[1]] = true
				if want := strings.TrimPrefix(name, "GATE_"); want != m[1] && want != "C" {
					t.Errorf("%s is the input %s", name, m[1])
				}
			}
			if strings.Contains(value, "github.token") && s.run == a.scripts["run.sh"].run {
				t.Error("the step that runs the code of a pull request has the token")
			}
		}
	}
	for file, input := range map[string]string{"history.sh": "history != ''", "comment.sh": "comment == 'true'"} {
		if s := a.scripts[file]; !strings.Contains(s.when, "inputs."+input) {
			t.Errorf("%s runs if %s", file, s.when)
		}
	}
	if a.defaults["history"] != "" || a.defaults["comment"] != "false" {
		t.Errorf("by default there are a history and a comment: %q", a.defaults)
	}
	for name := range a.defaults {
		if !used[name] {
			t.Errorf("no script gets the input %s", name)
		}
	}
	for _, flag := range flags {
		if _, ok := a.defaults[flag]; !ok && flag != "C" && flag != "version" {
			t.Errorf("the flag -%s has no input", flag)
		}
	}
}

// A runner stands for GitHub's: it runs the script of the action on a repository,
// with a go program that writes a gate which does nothing.
type runner struct {
	t                      *testing.T
	dir, repository, print string
}

func newRunner(t *testing.T) *runner {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	if os.PathSeparator != '/' {
		t.Skip("needs programs that are scripts")
	}
	r := &runner{t: t, dir: t.TempDir()}
	r.repository = filepath.Join(r.dir, "repository")
	for _, dir := range []string{"programs", "temp", "repository"} {
		must.Do(os.Mkdir(filepath.Join(r.dir, dir), 0o777))
	}
	program := `#!/bin/bash
printf '%s\n' "$PWD" "GOFLAGS=$GOFLAGS" "GOWORK=$GOWORK" "GOENV=$GOENV" "$@" >"$RUNNER_TEMP/build"
while [ "$1" != -o ]; do shift; done
cat >"$2/benchgate" <<'END'
#!/bin/bash
printf '<%s>\n' "$@" >"$RUNNER_TEMP/arguments"
for a; do case "$a" in -markdown=*) echo "**the verdict**" >"${a#*=}" ;; esac; done
exit "$FAKE_STATUS"
END
chmod +x "$2/benchgate"
`
	must.Do(os.WriteFile(filepath.Join(r.dir, "programs", "go"), []byte(program), 0o777))
	return r
}

// file returns the text of a file that a script has written, or nothing.
func (r *runner) file(name string) string {
	text, err := os.ReadFile(filepath.Join(r.dir, "temp", name))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(text)
}

// run runs run.sh with these inputs and a gate that ends with that status, and returns its own.
func (r *runner) run(inputs map[string]string, gate int) (status int) {
	r.t.Helper()
	return r.script("run.sh", inputs, fmt.Sprint("FAKE_STATUS=", gate))
}

// script runs a script with these inputs and more of the environment.
func (r *runner) script(file string, inputs map[string]string, env ...string) (status int) {
	r.t.Helper()
	a := readAction(r.t)
	s := a.scripts[file]
	temp := filepath.Join(r.dir, "temp")
	cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", s.run)
	cmd.Dir = r.repository
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "programs")+":"+os.Getenv("PATH"),
		"GOFLAGS=-mod=vendor", "GOWORK="+temp,
		"RUNNER_TEMP="+temp, "GITHUB_ACTION_PATH="+must.Get(filepath.Abs(actionDir)),
		"GITHUB_OUTPUT="+filepath.Join(temp, "output"), "GITHUB_STEP_SUMMARY="+filepath.Join(temp, "summary"))
	for name, value := range s.env {
		if m := input.FindStringSubmatch(value); m != nil {
			given, ok := inputs[m[1]]
			if value = given; !ok {
				value = a.defaults[m[1]]
			}
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	r.print = string(out)
	if cmd.ProcessState == nil {
		r.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// TestAction runs the script of the action.
func TestAction(t *testing.T) {
	t.Run("arguments", func(t *testing.T) {
		r := newRunner(t)
		bad := "a b$(touch bad)`touch bad`'\";touch bad"
		inputs := map[string]string{"bench": bad, "packages": "./a ./b/...", "directory": ".", "args": "-x=1 2\n\n-y\n"}
		want := []string{"./a", "./b/...", "-base=HEAD^1", "-bench=" + bad, "-C=."}
		for name, value := range readAction(t).defaults {
			if value == "" && inputs[name] == "" {
				inputs[name] = "the " + name
				if name == "history" {
					continue // a branch
				}
				want = append(want, "-"+strings.ReplaceAll(name, "_", "-")+"=the "+name)
			}
		}
		if status := r.run(inputs, 0); status != 0 {
			t.Fatalf("status %d:\n%s", status, r.print)
		}
		_, reports, _ := strings.Cut(strings.TrimSpace(r.file("output")), "\nreports=")
		want = append(want, "-history="+reports+"/history.jsonl", "-markdown="+reports+"/gate.md",
			"-json="+reports+"/gate.json",
			"-junit="+reports+"/gate.xml", "-benchfmt="+reports+"/gate.txt", "-profiles="+reports+"/profiles")
		got, rest, _ := strings.Cut(r.file("arguments"), "<-->\n")
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		slices.Sort(lines)
		for i, a := range want {
			want[i] = "<" + a + ">"
		}
		slices.Sort(want)
		if !slices.Equal(lines, want) || rest != "<-x=1 2>\n<-y>\n" {
			t.Errorf("arguments\n%s\nand after --\n%s\nwant\n%s", got, rest, want)
		}
		if _, err := os.Stat(filepath.Join(r.repository, "bad")); err == nil {
			t.Error("an input was run as a command")
		}
		if reports == "" || r.file("summary") != "**the verdict**\n" {
			t.Errorf("reports are in %q, and the summary is %q", reports, r.file("summary"))
		}
	})
	t.Run("build", func(t *testing.T) {
		r := newRunner(t)
		r.run(nil, 0)
		root := must.Get(filepath.Abs("../.."))
		if want := root + "\nGOFLAGS=\nGOWORK=off\nGOENV=off\nbuild\n"; !strings.HasPrefix(r.file("build"), want) {
			t.Errorf("go build ran with\n%s\nwant first\n%s", r.file("build"), want)
		}
	})
	for gate, want := range []int{0, 1, 2, 0} {
		t.Run(fmt.Sprint("status ", gate), func(t *testing.T) {
			r := newRunner(t)
			if status := r.run(nil, gate); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
			if warned := strings.Contains(r.print, "::warning "); warned != (gate == 3) {
				t.Errorf("printed\n%s", r.print)
			}
			if r.file("summary") == "" {
				t.Error("no summary")
			}
		})
	}
}

// TestHistoryScript: the lines are added to the branch, beside those of others and of another job that pushes at the
// same time, and the page is drawn.
func TestHistoryScript(t *testing.T) {
	r := newRunner(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	server := filepath.Join(r.dir, "server")
	git := func(dir string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e@x"}, args...)...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return string(must.Get(cmd.Output()))
	}
	bare := filepath.Join(server, "owner", "name")
	must.Do(os.MkdirAll(bare, 0o777))
	git(bare, "init", "--quiet", "--bare")
	reports, bin := filepath.Join(r.dir, "reports"), filepath.Join(r.dir, "bin")
	must.Do(os.Mkdir(reports, 0o777))
	must.Do(os.Mkdir(bin, 0o777))
	gate := `#!/bin/bash
[ "$1 $2" = "trend -html" ] || exit 2
echo "$(wc -l <"$4") lines" >"$3"
`
	must.Do(os.WriteFile(filepath.Join(bin, "benchgate"), []byte(gate), 0o777))
	home := filepath.Join(r.dir, "home")
	must.Do(os.Mkdir(home, 0o777))
	add := func(line string, inputs map[string]string) int {
		must.Do(os.WriteFile(filepath.Join(reports, "history.jsonl"), []byte(line), 0o666))
		inputs["history"] = "bench/history"
		return r.script("history.sh", inputs, "GATE_token=secret", "GATE_bin="+bin, "GATE_reports="+reports,
			"GITHUB_SERVER_URL=file://"+server, "GITHUB_REPOSITORY=owner/name", "GITHUB_SHA=abc", "HOME="+home,
			"GIT_CONFIG_GLOBAL="+os.DevNull)
	}
	show := func(path string) string { return git(bare, "show", "refs/heads/bench/history:"+path) }
	for i, line := range []string{"1\n", "2\n"} {
		if status := add(line, map[string]string{}); status != 0 {
			t.Fatalf("line %d: status %d\n%s", i, status, r.print)
		}
	}
	if status := add("other\n", map[string]string{"artifact": "a b$(touch bad)"}); status != 0 {
		t.Fatalf("status %d\n%s", status, r.print)
	}
	// Before the first push arrives, another job's does.
	hook := `#!/bin/bash
[ -e "$PWD/raced" ] && exit 0
touch "$PWD/raced"
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
tree=$(git rev-parse bench/history^{tree})
new=$(git -c user.name=n -c user.email=e@x commit-tree -p bench/history -m race "$tree")
git update-ref refs/heads/bench/history "$new"
exit 1
`
	must.Do(os.WriteFile(filepath.Join(bare, "hooks", "pre-receive"), []byte(hook), 0o777))
	if status := add("3\n", map[string]string{}); status != 0 {
		t.Fatalf("status %d\n%s", status, r.print)
	}
	if text := show("benchgate.jsonl"); text != "1\n2\n3\n" {
		t.Errorf("the lines are %q\n%s", text, r.print)
	}
	if text := show("benchgate.html"); text != "3 lines\n" {
		t.Errorf("the page is %q", text)
	}
	if text := show("a b$(touch bad).jsonl"); text != "other\n" {
		t.Errorf("the lines of the other artifact are %q", text)
	}
	if log := git(bare, "log", "--format=%s", "bench/history"); log != "benchgate: abc\nrace\n"+strings.Repeat(
		"benchgate: abc\n", 3) {
		t.Errorf("the commits are\n%s", log)
	}
	if status := add("", map[string]string{}); status != 0 || !strings.Contains(r.print, "::warning ") {
		t.Errorf("no lines: status %d\n%s", status, r.print)
	}
	for _, name := range []string{"../x", ".git"} {
		if status := add("4\n", map[string]string{"artifact": name}); status != 2 {
			t.Errorf("artifact %s: status %d\n%s", name, status, r.print)
		}
	}
	must.Do(os.RemoveAll(bare))
	if status := add("5\n", map[string]string{}); status == 0 {
		t.Errorf("a server that is gone: status 0\n%s", r.print)
	}
	if strings.Contains(r.print, "secret") {
		t.Errorf("the token is in the log:\n%s", r.print)
	}
}

// TestCommentScript: a pull request has one comment, which later runs renew.
func TestCommentScript(t *testing.T) {
	r := newRunner(t)
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip(err)
	}
	temp := filepath.Join(r.dir, "temp")
	gh := `#!/bin/bash
printf '%s\n' "$*" >>"$RUNNER_TEMP/calls"
case "$*" in
*--input*) cat >"$RUNNER_TEMP/body"; exit "${FAKE_POST:-0}" ;;
*) cat "$RUNNER_TEMP/comments" ;;
esac
`
	must.Do(os.WriteFile(filepath.Join(r.dir, "programs", "gh"), []byte(gh), 0o777))
	must.Do(os.WriteFile(filepath.Join(temp, "gate.md"),
		[]byte("**verdict** \"é\"\n"+strings.Repeat("long line\n", 9000)), 0o666))
	const others = `{"id":1,"user":{"login":"somebody"},"body":"<!-- benchgate: benchgate --> me"},` +
		`{"id":2,"user":{"login":"github-actions[bot]"},"body":"of another action"},` +
		`{"id":3,"user":{"login":"github-actions[bot]"},"body":"<!-- benchgate: other -->"}`
	post := func(comments string, env ...string) (calls []string) {
		must.Do(os.WriteFile(filepath.Join(temp, "comments"), []byte(comments), 0o666))
		must.Do(os.RemoveAll(filepath.Join(temp, "calls")))
		must.Do(os.RemoveAll(filepath.Join(temp, "body")))
		env = append([]string{"GATE_pull=7", "GATE_reports=" + temp, "GITHUB_REPOSITORY=o/n"}, env...)
		if status := r.script("comment.sh", nil, env...); status != 0 {
			t.Errorf("status %d\n%s", status, r.print)
		}
		return strings.Split(strings.TrimSpace(r.file("calls")), "\n")
	}
	if calls := post("[" + others + "]"); len(calls) != 2 ||
		calls[1] != "api --silent --method POST repos/o/n/issues/7/comments --input -" {
		t.Errorf("calls %q\n%s", calls, r.print)
	}
	if body := r.file("body"); len(body) < 60000 || len(body) > 70000 || !strings.Contains(body,
		`"body": "<!-- benchgate: benchgate -->\n**verdict** \"é\"\nlong line\n`) {
		t.Errorf("the body has %d bytes: %.100s", len(body), body)
	}
	mine := `[{"id":8,"user":{"login":"github-actions[bot]"},"body":"<!-- benchgate: benchgate -->\nold"}]`
	if calls := post("[" + others + "]" + mine + mine); len(calls) != 2 || // two pages, and a second comment
		calls[1] != "api --silent --method PATCH repos/o/n/issues/comments/8 --input -" {
		t.Errorf("calls %q\n%s", calls, r.print)
	}
	if post("[]", "FAKE_POST=1"); !strings.Contains(r.print, "::warning ") {
		t.Errorf("no right to write: printed\n%s", r.print)
	}
	if post("no JSON"); !strings.Contains(r.print, "::warning ") || r.file("body") != "" {
		t.Errorf("no list: printed\n%s", r.print)
	}
	for _, env := range []string{"GATE_pull=", "GATE_reports=" + r.dir} {
		if post("[]", env); r.file("calls") != "" {
			t.Errorf("%s: it calls\n%s", env, r.file("calls"))
		}
	}
}
