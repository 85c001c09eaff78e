package atomicfile

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain lets this program be one that writes a file and does not end, and one that is told
// to end then.
func TestMain(m *testing.M) {
	path := os.Getenv("REWEIGHT_TEST_WRITE")
	if path == "" {
		os.Exit(m.Run())
	}
	Lock(filepath.Dir(path))
	Write(path, func(w io.Writer) error {
		NewTemporary(filepath.Dir(path), 0o600)
		fmt.Println("begun")
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			Abandon()
			os.Exit(3)
		}
		return nil
	})
}

// writing starts a program that writes the file and does not end.
func writing(t *testing.T, path string) (p *exec.Cmd, abandon func()) {
	t.Helper()
	p = exec.Command(os.Args[0])
	p.Env = append(os.Environ(), "REWEIGHT_TEST_WRITE="+path)
	input, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Skip("no other program can be started: ", err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return p, func() { input.Write([]byte{0}) }
}

func hasLocks() bool { return runtime.GOOS == "linux" || runtime.GOOS == "darwin" }

// TestLeft: what a killed program left is removed, and nothing else: not what a program that
// runs is writing, nor a file of somebody.
func TestLeft(t *testing.T) {
	if !hasLocks() {
		t.Skip("this system has no locks")
	}
	dir := t.TempDir()
	mine := filepath.Join(dir, ".reweight-mine.tmp")
	if err := os.WriteFile(mine, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	p, _ := writing(t, filepath.Join(dir, "x"))
	if visible, err := filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil || len(visible) > 0 {
		t.Errorf("the shell's * stands for %v, %v", visible, err)
	}
	if n, err := RemoveLeft(dir); n != 0 || err != nil {
		t.Errorf("of a program that runs %d files are removed, %v", n, err)
	}
	p.Process.Kill()
	p.Wait()
	if n, err := RemoveLeft(dir); n != 2 || err != nil {
		t.Errorf("of a killed program %d files are removed, want 2, %v", n, err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

// TestAbandon: a program that ends at once leaves neither an output nor anything else.
func TestAbandon(t *testing.T) {
	dir := t.TempDir()
	p, abandon := writing(t, filepath.Join(dir, "x"))
	abandon()
	if p.Wait(); p.ProcessState.ExitCode() != 3 {
		t.Error(p.ProcessState)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 && runtime.GOOS != "windows" {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLock: one program at a time, and the next once it has ended, whatever way.
func TestLock(t *testing.T) {
	if !hasLocks() {
		t.Skip("this system has no locks")
	}
	dir := t.TempDir()
	p, _ := writing(t, filepath.Join(dir, "x"))
	_, err := Lock(dir)
	if want := fmt.Sprintf("%s is in use by process %d on ", dir, p.Process.Pid); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	p.Process.Kill()
	p.Wait()
	for range 2 {
		unlock, err := Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	if _, err := os.Stat(filepath.Join(dir, ".reweight.lock")); err == nil {
		t.Error("the lock is left behind")
	}
	if err := os.Symlink("x", filepath.Join(dir, ".reweight.lock")); err != nil {
		t.Skip(err)
	}
	if _, err := Lock(dir); err == nil || !strings.HasSuffix(err.Error(), ".reweight.lock: not a regular file") {
		t.Errorf("a link in the place of the lock: error %v", err)
	}
}

// TestLeftWhileWriting: who removes what was left disturbs nobody who writes at the time.
func TestLeftWhileWriting(t *testing.T) {
	dir := t.TempDir()
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			err = Write(filepath.Join(dir, "x"), fillX)
		}
		done <- err
	}()
	for end := time.After(time.Minute); ; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		case <-end:
			t.Fatal("it does not end")
		default:
			if _, err := RemoveLeft(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}
