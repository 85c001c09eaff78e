package cli

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
)

// module is the module of the programs.
const module = "github.com/seed621a2839/reweight"

// release is the version of a program that a build makes without git, as native/build does:
// the linker sets it.
var release string

// Version returns the version of this module that the program was built of, (devel) if
// nothing tells it.
func Version() string {
	v, _ := versionOf(buildInfo())
	return v
}

// versionLine says what -version prints: version and commit, and what built the program.
func versionLine(command string, info *debug.BuildInfo) string {
	v, commit := versionOf(info)
	if commit != "" {
		commit = ", commit " + commit
	}
	return fmt.Sprintf("%s %s%s, %s %s/%s", command, v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func buildInfo() *debug.BuildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return new(debug.BuildInfo)
	}
	return info
}

// pseudo is a version without a tag: it ends in 12 digits of its commit.
var pseudo = regexp.MustCompile(`[-.][0-9]{14}-([0-9a-f]{12})(\+|$)`)

// versionOf returns the version of this module, and the commit if that is known. Where the
// program is a tool of another module, this one is among what that one needs.
func versionOf(info *debug.BuildInfo) (version, commit string) {
	m := &info.Main
	for _, dep := range info.Deps {
		if dep.Path == module {
			m = dep
		}
	}
	if m.Replace != nil {
		m = m.Replace
	}
	if found := pseudo.FindStringSubmatch(m.Version); found != nil {
		commit = found[1]
	}
	if m == &info.Main {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += " with changes"
			}
		}
	}
	return cmp.Or(release, m.Version, "(devel)"), commit
}
