package atomicfile

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestMain lets this program be one that writes a file and does not end, and one that is told
// to end then.
func TestMain(m *testing.M) {
	path := os.Getenv("REWEIGHT_TEST_WRITE")
	if path == "" {
		os.Exit(m.Run())
	}
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

// TestAbandon: a program that ends at once leaves neither an output nor anything else.
func TestAbandon(t *testing.T) {
	dir := t.TempDir()
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), "REWEIGHT_TEST_WRITE="+filepath.Join(dir, "x"))
	input := must.Get(p.StdinPipe())
	output := must.Get(p.StdoutPipe())
	if err := p.Start(); err != nil {
		t.Skip("no other program can be started: ", err)
	}
	must.Get(output.Read(make([]byte, 1)))
	must.Get(input.Write([]byte{0}))
	if p.Wait(); p.ProcessState.ExitCode() != 3 {
		t.Error(p.ProcessState)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 && runtime.GOOS != "windows" {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
