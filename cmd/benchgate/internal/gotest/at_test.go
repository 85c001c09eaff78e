package gotest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// revisions makes a repository with these files, and another revision of it in
// another directory. Their package old differs. Files outside of the repository, its
// go.work and its directory new are not in the other revision.
func revisions(t *testing.T, files map[string]string) (top, tree string) {
	t.Helper()
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))
	top, tree = filepath.Join(dir, "src", "repository"), filepath.Join(dir, "cache", "deep", "tree")
	copyModule(t, top)
	copyModule(t, tree)
	write(t, tree, map[string]string{"old/old.go": "package old\n\nconst Revision = 1\n"})
	for name, text := range files {
		write(t, top, map[string]string{name: text})
		if !strings.HasPrefix(name, "../") && !strings.HasPrefix(name, "go.work") && !strings.HasPrefix(name, "new/") {
			write(t, tree, map[string]string{name: text})
		}
	}
	unchanged(t, filepath.Dir(top))
	unchanged(t, tree)
	return top, tree
}

// outside is a module that a module of the repository needs.
var outside = map[string]string{
	"../outside/go.mod":     "module example.com/outside\n\ngo 1.20\n",
	"../outside/outside.go": "package outside\n\nconst Distance = 10\n",
	"sub/sub_test.go": `package sub

import (
	"testing"

	"example.com/old"
	"example.com/outside"
)

func BenchmarkSub(b *testing.B) { b.ReportMetric(old.Revision+outside.Distance, "sum") }
`,
}

const subModule = "module example.com/sub\n\ngo 1.20\n\nrequire (\n\texample.com/old v0.0.0\n\texample.com/outside v0.0.0\n)\n"

// The workspace has that other module.
var withoutOld = strings.Replace(subModule, "\texample.com/old v0.0.0\n", "", 1)

// with adds files to others.
func with(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// uses checks where the module finds the packages old and outside.
func uses(t *testing.T, m *Module, want ...string) {
	t.Helper()
	dirs, err := m.run(t.Context(), slices.Concat([]string{"list", "-f={{.Dir}}"}, m.flags, m.listFlags,
		[]string{"example.com/old", "example.com/outside"})...)
	if got := strings.Fields(dirs); err != nil || !slices.Equal(got, want) {
		t.Errorf("it uses %q, and %v, want %q", got, err, want)
	}
}

func TestAt(t *testing.T) {
	runsBuilds(t)
	offline(t, "")
	at := func(t *testing.T, top, tree, dir string) *Module {
		t.Helper()
		m := must.Get(open(t, filepath.Join(top, dir)).At(t.Context(), top, tree, t.TempDir()))
		return m
	}
	for _, c := range []struct {
		name  string
		files map[string]string
	}{
		{"replace directives", map[string]string{
			"sub/go.mod": subModule + "\nreplace example.com/old => ../old\n\nreplace example.com/outside v0.0.0 => ../../outside\n",
		}},
		{"a go.work that git ignores", map[string]string{
			"sub/go.mod": subModule + "\nreplace example.com/old v0.0.0 => ../old\n",
			"go.work":    "go 1.20\n\ntoolchain default\n\nuse (\n\t.\n\t./sub\n)\n\nreplace (\n\texample.com/outside => ../outside // elsewhere\n)\n",
		}},
		{"a go.work outside", map[string]string{
			"sub/go.mod":     strings.Replace(subModule, "\texample.com/old v0.0.0\n", "", 1),
			"../go.work":     "go 1.20\n\nuse ./outside\n\nuse ./repository/sub\n\nuse repository/old\n",
			"../go.work.sum": "",
		}},
		{"a go.work above a replaced module", map[string]string{
			"sub/go.mod": subModule + "\nreplace example.com/outside => ../../outside\n\nreplace example.com/old => ../old\n",
			"go.work":    "go 1.20\n\nuse ./sub\n\nuse ./new\n",
			"new/go.mod": "module example.com/new\n\ngo 1.20\n",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, tree := revisions(t, with(outside, c.files))
			m := at(t, top, tree, "sub")
			if m.Dir != filepath.Join(tree, "sub") || m.Path != "example.com/sub" {
				t.Errorf("module %s in %s", m.Path, m.Dir)
			}
			uses(t, m, filepath.Join(tree, "old"), filepath.Join(filepath.Dir(top), "outside"))
		})
	}

	t.Run("a directory vendor", func(t *testing.T) {
		top, tree := revisions(t, with(outside, map[string]string{
			"sub/go.mod":                                subModule + "\nreplace example.com/outside => ../../outside\n\nreplace example.com/old => ../old\n",
			"sub/vendor/modules.txt":                    "# example.com/old v0.0.0 => ../old\n## explicit; go 1.13\nexample.com/old\n# example.com/outside v0.0.0 => ../../outside\n## explicit; go 1.20\nexample.com/outside\n# example.com/old => ../old\n# example.com/outside => ../../outside\n",
			"sub/vendor/example.com/old/old.go":         "package old\n\nconst Revision = 1\n",
			"sub/vendor/example.com/outside/outside.go": "package outside\n\nconst Distance = 10\n",
		}))
		m := at(t, top, tree, "sub")
		if got := result(t, m, "."); got != "BenchmarkSub-2 2 11.00 sum" {
			t.Errorf("line %q", got)
		}
	})

	t.Run("a go.work of the revision", func(t *testing.T) {
		files := with(outside, map[string]string{"sub/go.mod": withoutOld, "sub/go.work": "go 1.20\n\nuse (\n\t.\n\t../old\n)\n\nreplace example.com/outside => ../../outside\n"})
		top, tree := revisions(t, files)
		m := at(t, top, tree, "sub")
		uses(t, m, filepath.Join(tree, "old"), filepath.Join(filepath.Dir(top), "outside"))
		if got := result(t, m, "."); got != "BenchmarkSub-2 2 11.00 sum" {
			t.Errorf("line %q", got)
		}
		if got := result(t, m, "../old"); got != "BenchmarkOld-2 2 1.000 revision" { // another module of the workspace
			t.Errorf("line %q", got)
		}
		// Of what leads nowhere else, it stays as it is.
		files["sub/go.work"] = "go 1.20\n\nuse (\n\t.\n\t../old\n)\n"
		top, tree = revisions(t, files)
		if m := at(t, top, tree, "sub"); m.work != filepath.Join(tree, "sub", "go.work") {
			t.Errorf("go.work is %s", m.work)
		}
		t.Setenv("GOWORK", "off")
		if m := at(t, top, tree, "sub"); m.work != "" || !slices.Contains(m.Environ(), "GOWORK=off") {
			t.Errorf("go.work is %q", m.work)
		}
	})
	t.Run("by a link", func(t *testing.T) {
		top, tree := revisions(t, with(outside, map[string]string{
			"sub/go.mod":       subModule + "\nreplace example.com/old => ../old\n\nreplace example.com/outside => ../../outside\n",
			"sub/path_test.go": "package sub\n\nimport (\n\t\"runtime\"\n\t\"testing\"\n)\n\nfunc BenchmarkPath(b *testing.B) { _, path, _, _ := runtime.Caller(0); b.Log(path) }\n",
		}))
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(tree, link); err != nil {
			t.Skip(err)
		}
		m := at(t, top, link, "sub")
		uses(t, m, filepath.Join(link, "old"), filepath.Join(filepath.Dir(top), "outside"))
		want := filepath.ToSlash(filepath.Join(link, "sub", "path_test.go"))
		if got := result(t, m, "."); !strings.Contains(got, " "+want+"\n") {
			t.Errorf("lines %q, want the path %s", got, want)
		}
	})
	t.Run("another go.mod", func(t *testing.T) {
		top, tree := revisions(t, with(outside, map[string]string{
			"sub/go.mod":  "module example.com/sub\n",
			"sub/alt.mod": subModule + "\nreplace example.com/outside => ../../outside\n\nreplace example.com/old => ../old\n",
		}))
		t.Setenv("GOFLAGS", "-modfile=alt.mod")
		m := at(t, top, tree, "sub")
		uses(t, m, filepath.Join(tree, "old"), filepath.Join(filepath.Dir(top), "outside"))
		if got := result(t, m, "."); got != "BenchmarkSub-2 2 11.00 sum" {
			t.Errorf("line %q", got)
		}
	})
	t.Run("no module", func(t *testing.T) {
		top, tree := revisions(t, map[string]string{"new/go.mod": "module example.com/new\n"})
		m := open(t, filepath.Join(top, "new"))
		if _, err := m.At(t.Context(), top, tree, t.TempDir()); err == nil ||
			err.Error() != "there is no go.mod in new" {
			t.Errorf("error %v", err)
		}
		if _, err := m.At(t.Context(), filepath.Join(top, "old"), tree, t.TempDir()); err == nil ||
			!strings.Contains(err.Error(), "module example.com/new is not in ") {
			t.Errorf("error %v", err)
		}
	})
}
