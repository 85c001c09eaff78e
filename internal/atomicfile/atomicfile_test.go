package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestFailureKeepsFile: until all is written, and after a failure, the old file
// is there and nothing else.
func TestFailureKeepsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	old := []byte("old")
	must.Do(os.WriteFile(path, old, 0o666))
	boom := errors.New("boom")
	err := Write(path, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, old) {
			t.Errorf("while writing the file holds %q, %v", got, err)
		}
		return boom
	})
	if want := path + ": boom"; !errors.Is(err, boom) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, old) {
		t.Errorf("the file holds %q, %v", got, err)
	}
	expectAlone(t, dir)
	if err := Write(path, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Errorf("after a write that works the file holds %q", got)
	}
	expectAlone(t, dir)
}

func expectAlone(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the directory holds %v, %v", files, err)
	}
}

func fillX(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }

// TestPermissions: a new file's bits are the system's, those of an old one stay.
func TestPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	other := filepath.Join(t.TempDir(), "other")
	must.Do(os.WriteFile(other, nil, 0o666))
	must.Do(Write(path, fillX))
	if got, want := permissions(t, path), permissions(t, other); got != want {
		t.Errorf("a new file has %v, want %v", got, want)
	}
	for _, want := range []fs.FileMode{0o600, 0o640, 0o666, 0o755, 0o400} {
		must.Do(os.Chmod(path, want))
		if permissions(t, path) != want {
			t.Skipf("this system has no permission bits such as %v", want)
		}
		must.Do(Write(path, fillX))
		if got := permissions(t, path); got != want {
			t.Errorf("a file of %v has %v after it was written again", want, got)
		}
	}
}

// permissions returns the permission bits of a file.
func permissions(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info := must.Get(os.Stat(path))
	return info.Mode().Perm()
}

// TestLongName: the longest name that the system takes is one to write to.
func TestLongName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("n", 255))
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Skip(err)
	}
	os.Remove(path)
	if err := Check(path); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := Write(path, fillX); err != nil {
			t.Error(err)
		}
	}
	expectAlone(t, dir)
	if err := Check(path + "n"); err == nil {
		t.Error("Check takes a name that is too long")
	}
}

func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(os.WriteFile("file", []byte("old"), 0o666))
	must.Do(os.MkdirAll("dir", 0o777))
	names := func() string { return fmt.Sprint(must.Get(filepath.Glob("*")), must.Get(filepath.Glob("dir/*"))) }
	before := names()
	for _, c := range []struct{ path, want string }{
		{"file", ""},
		{"new", ""},
		{filepath.Join("dir", "new"), ""},
		{"", `"": not the name of a file`},
		{"new/", "new/: not the name of a file"},
		{"dir", "dir: not a regular file"},
		{".", ".: not a regular file"},
		{filepath.Join("none", "new"), filepath.Join("none", "new") + ": no file can be made in none: "},
		{filepath.Join("none\u202e", "new"), `"none\u202e`},
	} {
		for name, err := range map[string]error{
			"Check": Check(c.path),
			"Write": Write(c.path, func(io.Writer) error { return errors.New("fill is called") }),
		} {
			want := c.want
			if want == "" && name == "Write" {
				want = c.path + ": fill is called"
			}
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s(%q): error %v, want %q", name, c.path, err, want)
			}
		}
	}
	if after := names(); after != before {
		t.Errorf("there are %s, want %s", after, before)
	}
	if old, err := os.ReadFile("file"); string(old) != "old" {
		t.Errorf("the file holds %q, %v", old, err)
	}
}

func TestCheckReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	must.Do(os.Chmod(dir, 0o555))
	if f, err := os.Create(filepath.Join(dir, "probe")); err == nil {
		f.Close()
		t.Skip("this user or system may write to a read-only directory")
	}
	if err := Check(filepath.Join(dir, "x")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v, want %v", err, fs.ErrPermission)
	}
}

// TestErrorsNameTheFile: an error names the file that the caller asked for, not the
// one that is written first.
func TestErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	err := Write(path, func(w io.Writer) error {
		w.(output).file.Close()
		_, err := w.Write([]byte("x"))
		return err
	})
	if !errors.Is(err, fs.ErrClosed) || err.Error() != path+": "+fs.ErrClosed.Error() {
		t.Errorf("error %v, want %v", err, fs.ErrClosed)
	}
	if runtime.GOOS == "windows" {
		return
	}
	err = Write(path, func(io.Writer) error { return os.Mkdir(path, 0o777) })
	if err == nil || strings.Contains(err.Error(), ".tmp") || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("a rename onto a directory: error %v, want one that names %s", err, path)
	}
}

// TestRead: a file of the limit's size is read, and a larger one, or what is no file,
// is an error that names it.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if _, err := Read(path, 5); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("no file: error %v", err)
	}
	must.Do(os.WriteFile(path, []byte("hello"), 0o666))
	if data, err := Read(path, 5); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := Read(path, 4); fmt.Sprint(err) != path+": 5 bytes, want at most 4" {
		t.Errorf("too large: error %v", err)
	}
	if _, err := Read(dir, 5); fmt.Sprint(err) != dir+": not a regular file" {
		t.Errorf("a directory: error %v", err)
	}
}

// TestPanic: a fill that panics leaves nothing behind.
func TestPanic(t *testing.T) {
	dir := t.TempDir()
	func() {
		defer func() { recover() }()
		Write(filepath.Join(dir, "x"), func(io.Writer) error { panic("in fill") })
	}()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
