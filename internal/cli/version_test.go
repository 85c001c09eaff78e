package cli

import (
	"runtime/debug"
	"testing"
)

// TestVersionOf: the version and the commit are those of this module, in whatever way the
// program was built.
func TestVersionOf(t *testing.T) {
	const commit = "f5a0830507f741fa3544e531cb438896c990909f"
	ours := func(version string) debug.Module { return debug.Module{Path: module, Version: version} }
	dep := func(m debug.Module) []*debug.Module {
		return []*debug.Module{{Path: "example.org/other", Version: "v9.0.0"}, &m}
	}
	git := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit},
			{Key: "vcs.modified", Value: modified}}
	}
	replaced := ours("v0.1.0")
	replaced.Replace = &debug.Module{Path: "../reweight"}
	theirs := debug.Module{Path: "example.org/user", Version: "v3.0.0"}
	for name, c := range map[string]struct {
		info          debug.BuildInfo
		version, from string
	}{
		"a tag":              {debug.BuildInfo{Main: ours("v0.1.0")}, "v0.1.0", ""},
		"no tag":             {debug.BuildInfo{Main: ours("v0.0.0-20261127185633-f5a0830507f7")}, "v0.0.0-20261127185633-f5a0830507f7", commit[:12]},
		"after a tag":        {debug.BuildInfo{Main: ours("v0.1.1-0.20261127185633-f5a0830507f7")}, "v0.1.1-0.20261127185633-f5a0830507f7", commit[:12]},
		"a clone":            {debug.BuildInfo{Main: ours("v0.1.0"), Settings: git("false")}, "v0.1.0", commit},
		"a changed clone":    {debug.BuildInfo{Main: ours("v0.1.0+dirty"), Settings: git("true")}, "v0.1.0+dirty", commit + " with changes"},
		"go run":             {debug.BuildInfo{Main: ours("(devel)")}, "(devel)", ""},
		"nothing is known":   {debug.BuildInfo{}, "(devel)", ""},
		"a tool of another":  {debug.BuildInfo{Main: theirs, Deps: dep(ours("v0.1.0")), Settings: git("true")}, "v0.1.0", ""},
		"a replaced version": {debug.BuildInfo{Main: theirs, Deps: dep(replaced)}, "(devel)", ""},
	} {
		if version, from := versionOf(&c.info); version != c.version || from != c.from {
			t.Errorf("%s: %q of %q, want %q of %q", name, version, from, c.version, c.from)
		}
	}
	release = "v0.2.0"
	defer func() { release = "" }()
	if version, _ := versionOf(&debug.BuildInfo{Main: ours("(devel)")}); version != release {
		t.Errorf("%q, want what the linker set, %q", version, release)
	}
}
