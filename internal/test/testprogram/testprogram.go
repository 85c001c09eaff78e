// Package testprogram lets the test of a program start the program as a process of its
// own: the test binary is the program if the environment says so. It also has what all
// programs must do with wrong arguments, for help and on a full disk.
package testprogram

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const variable = "REWEIGHT_TEST_MAIN"

// Main is what TestMain calls: it runs main in a process that Command has started, and the
// tests in others.
func Main(m *testing.M, main func()) {
	if os.Getenv(variable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// Command is the program with these arguments. It is killed if it does not end by itself.
func Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if err := exec.Command(os.Args[0], "-test.run", "^$").Run(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated process cannot start another")
	}
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), variable+"=1")
	late := time.AfterFunc(5*time.Minute, func() {
		if c.Process != nil {
			c.Process.Kill()
		}
	})
	t.Cleanup(func() { late.Stop() })
	return c
}
