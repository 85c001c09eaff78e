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

// An action is what the tests need of action.yml: the defaults of its inputs, and its one script with the variables
// of that.
type action struct {
	defaults map[string]string
	run      string
	env      map[string]string
}

// readAction reads the lines of action.yml that have the form of this one file.
func readAction(t *testing.T) action {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(actionDir, "action.yml")))
	inputs, runs, _ := strings.Cut(string(text), "\nruns:\n")
	a := action{defaults: map[string]string{}, env: map[string]string{}}
	for _, m := range regexp.MustCompile(
		`(?m)^  ([a-z_]+):\n(?:    .*\n|      .*\n)*?    default: (.*)$`).FindAllStringSubmatch(inputs, -1) {
		a.defaults[m[1]] = strings.Trim(m[2], `"`)
	}
	for _, m := range regexp.MustCompile(`(?m)^        (GATE_\w+): (.*)$`).FindAllStringSubmatch(runs, -1) {
		a.env[m[1]] = m[2]
	}
	scripts := regexp.MustCompile(`(?m)^      run: (.*)$`).FindAllStringSubmatch(runs, -1)
	if len(scripts) != 1 {
		t.Fatalf("action.yml has %d scripts, want 1", len(scripts))
	}
	a.run = scripts[0][1]
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
	if strings.Contains(a.run, "${{") {
		t.Errorf("the script has an expression in it: %s", a.run)
	}
	used := map[string]bool{"artifact": true}
	for name, value := range a.env {
		if m := input.FindStringSubmatch(value); m != nil {
			used[m[1]] = true
			if want := strings.TrimPrefix(name, "GATE_"); want != m[1] && want != "C" {
				t.Errorf("%s is the input %s", name, m[1])
			}
		}
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

// run runs the script with these inputs and a gate that ends with that status, and returns its own.
func (r *runner) run(inputs map[string]string, gate int) (status int) {
	r.t.Helper()
	a := readAction(r.t)
	temp := filepath.Join(r.dir, "temp")
	cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", a.run)
	cmd.Dir = r.repository
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "programs")+":"+os.Getenv("PATH"),
		"GOFLAGS=-mod=vendor", "GOWORK="+temp,
		"RUNNER_TEMP="+temp, "GITHUB_ACTION_PATH="+must.Get(filepath.Abs(actionDir)), fmt.Sprint("FAKE_STATUS=", gate),
		"GITHUB_OUTPUT="+filepath.Join(temp, "output"), "GITHUB_STEP_SUMMARY="+filepath.Join(temp, "summary"))
	for name, value := range a.env {
		if m := input.FindStringSubmatch(value); m != nil {
			given, ok := inputs[m[1]]
			if value = given; !ok {
				value = a.defaults[m[1]]
			}
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
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
				want = append(want, "-"+strings.ReplaceAll(name, "_", "-")+"=the "+name)
			}
		}
		if status := r.run(inputs, 0); status != 0 {
			t.Fatalf("status %d:\n%s", status, r.print)
		}
		reports := strings.TrimSuffix(strings.TrimPrefix(r.file("output"), "reports="), "\n")
		want = append(want, "-markdown="+reports+"/gate.md", "-json="+reports+"/gate.json",
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
