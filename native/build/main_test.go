package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
	"github.com/seed621a2839/reweight/internal/version"
	"github.com/seed621a2839/reweight/native/internal/library"
)

// TestBadUse: a wrong command line is one line on the standard error and status 2.
func TestBadUse(t *testing.T) {
	for args, want := range map[string]string{"-x": "-x", "all": `"all"`, "-o=": "-o is empty",
		"-arch=": "-arch is empty"} {
		testprogram.Run(run).WrongUse(t, args, want)
	}
	testprogram.Run(run).Help(t, "-h", "-sanitize")
}

// TestFailures: what cannot be made is status 1.
func TestFailures(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	for arch, want := range map[string]string{runtime.GOARCH: "variable CC: no-such-compiler",
		"mips": "there is no library for mips"} {
		var stdout, stderr bytes.Buffer
		status := run([]string{"-o", t.TempDir(), "-arch", arch}, &stdout, &stderr)
		if status != 1 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: status %d, %q", arch, status, &stderr)
		}
	}
}

// made builds everything in a new folder, and returns the path of the wheel there.
func made(t *testing.T) string {
	if tags[runtime.GOARCH] == nil {
		t.Skipf("there is no library for %s", runtime.GOARCH)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if status := run([]string{"-o", dir}, &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	entries := must.Get(os.ReadDir(dir))
	var wheel string
	for _, e := range entries {
		if !strings.Contains(stdout.String(), filepath.Join(dir, e.Name())) {
			t.Errorf("it says nothing of %s:\n%s", e.Name(), &stdout)
		}
		if filepath.Ext(e.Name()) == ".whl" {
			wheel = filepath.Join(dir, e.Name())
		}
	}
	if len(entries) != 4 || wheel == "" {
		t.Fatalf("it made %v", entries)
	}
	return wheel
}

// find returns a file of an archive.
func find(t *testing.T, archive *zip.Reader, name string) *zip.File {
	t.Helper()
	i := slices.IndexFunc(archive.File, func(f *zip.File) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("the wheel has no %s", name)
	}
	return archive.File[i]
}

// checkProgram: the wheel's program can be run, and starts without a C library.
func checkProgram(t *testing.T, archive *zip.Reader) {
	file := find(t, archive, scripts+"reweight")
	if file.Mode().Perm() != 0o755 {
		t.Errorf("its mode is %v", file.Mode())
	}
	r := must.Get(file.Open())
	text := must.Get(io.ReadAll(r))
	binary := must.Get(elf.NewFile(bytes.NewReader(text)))
	if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC
	}) {
		t.Error("it is not static")
	}
	if runtime.GOOS != "linux" {
		return
	}
	path := filepath.Join(t.TempDir(), "reweight")
	must.Do(os.WriteFile(path, text, 0o777))
	if out, err := exec.Command(path, "../../testdata/frozenlake-small.safetensors").CombinedOutput(); err != nil ||
		!bytes.Contains(out, []byte("\nactfocus+aem ")) {
		t.Errorf("%v:\n%s", err, out)
	}
	want := "reweight v" + version.Version + ", go"
	if out, err := exec.Command(path, "-version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), want) {
		t.Errorf("-version: %v: %q, want %q and so on", err, out, want)
	}
}

var long = flag.Bool("long", false, "make the wheel twice: both have to be the same")

// TestWheel reads the wheel as pip does.
func TestWheel(t *testing.T) {
	path := made(t)
	data := must.Get(os.ReadFile(path))
	if *long {
		dir := t.TempDir()
		var stdout, stderr bytes.Buffer
		if status := run([]string{"-wheel", "-o", dir}, &stdout, &stderr); status != 0 {
			t.Fatalf("status %d: %s", status, &stderr)
		}
		if entries := must.Get(os.ReadDir(dir)); len(entries) != 1 {
			t.Errorf("-wheel makes %v", entries)
		}
		if !bytes.Equal(data, must.Get(os.ReadFile(filepath.Join(dir, filepath.Base(path))))) {
			t.Error("two wheels differ")
		}
	}
	t.Logf("%s has %d bytes", filepath.Base(path), len(data))
	if len(data) > 8e6 {
		t.Errorf("the wheel has %d bytes, want at most 8 MB", len(data))
	}
	archive := must.Get(zip.NewReader(bytes.NewReader(data), int64(len(data))))
	t.Run("program", func(t *testing.T) { checkProgram(t, archive) })
	size := len(data) - int(find(t, archive, scripts+"reweight").CompressedSize64)
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, ".ptx.gz") {
			size -= int(f.CompressedSize64)
		}
	}
	if size > 400e3 {
		t.Errorf("without the program and the GPU's kernels, the wheel has %d bytes, want at most 400 KB", size)
	}
	files := map[string]string{}
	var lines []string
	for _, f := range archive.File {
		r := must.Get(f.Open())
		text := must.Get(io.ReadAll(r))
		files[f.Name] = string(text)
		if f.Name == info+"RECORD" {
			lines = append(lines, f.Name+",,")
			continue
		}
		sum := sha256.Sum256(text)
		lines = append(lines, fmt.Sprintf("%s,sha256=%s,%d", f.Name, base64.RawURLEncoding.EncodeToString(sum[:]),
			len(text)))
	}
	if got := strings.Join(lines, "\n") + "\n"; got != files[info+"RECORD"] {
		t.Errorf("RECORD is\n%swant\n%s", files[info+"RECORD"], got)
	}
	if last := archive.File[len(archive.File)-1].Name; last != info+"RECORD" {
		t.Errorf("the last file is %s", last)
	}

	// Everything of the package is in it, and nothing else.
	want := []string{"reweight/libreweight.so", scripts + "reweight"}
	for _, name := range []string{"METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD"} {
		want = append(want, info+name)
	}
	module := must.Get(library.SourceDir())
	for pattern, folder := range map[string]string{
		"python/reweight/*.py": "reweight/", "python/reweight/adapters/*.py": "reweight/adapters/",
		"python/reweight/audit/*.py": "reweight/audit/",
		"python/reweight/py.typed":   "reweight/", "gpu/internal/device/*.ptx.gz": "reweight/ptx/",
	} {
		paths := must.Get(filepath.Glob(filepath.Join(module, filepath.FromSlash(pattern))))
		if len(paths) == 0 {
			t.Errorf("there is no %s", pattern)
		}
		for _, p := range paths {
			name := folder + filepath.Base(p)
			want = append(want, name)
			if data, err := os.ReadFile(p); err != nil || files[name] != string(data) {
				t.Errorf("%s differs: %v", name, err)
			}
		}
	}
	var got []string
	for name := range files {
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the wheel has\n%q\nwant\n%q", got, want)
	}
	for name, lines := range map[string][]string{
		"METADATA":         {"Name: reweight-rl", "Version: " + version.Version, "Requires-Python: >=3.11", "Requires-Dist: numpy>=1.26", `Requires-Dist: torch>=2.6; extra == "torch"`, "License-File: LICENSE"},
		"WHEEL":            {"Wheel-Version: 1.0", "Root-Is-Purelib: false"},
		"entry_points.txt": {"[verl.plugins]", "reweight = reweight.adapters.verl_plugin"},
	} {
		for _, line := range lines {
			if !strings.Contains(files[info+name], line+"\n") {
				t.Errorf("%s has no line %q:\n%s", name, line, files[info+name])
			}
		}
	}
	// The tags of the file's name and inside are the same.
	if !regexp.MustCompile(`^reweight_rl-[0-9.]+-py3-none-manylinux_2_17_(x86_64\.manylinux2014_x86_64\.musllinux_1_1_x86_64|` +
		`aarch64\.manylinux2014_aarch64\.musllinux_1_1_aarch64)\.whl$`).MatchString(filepath.Base(path)) {
		t.Errorf("the wheel's name is %s", filepath.Base(path))
	}
	parts := strings.Split(strings.TrimSuffix(filepath.Base(path), ".whl"), "-")
	for tag := range strings.SplitSeq(parts[4], ".") {
		if line := "Tag: py3-none-" + tag + "\n"; !strings.Contains(files[info+"WHEEL"], line) {
			t.Errorf("WHEEL has no %q", line)
		}
	}
}
