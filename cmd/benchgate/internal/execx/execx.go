// Package execx runs other programs, such as git and the go command.
package execx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// hookVariables are the environment variables by which git tells a hook where the
// repository and its index are. In another working tree they would be wrong: git
// would check it out into the index of the commit that is being made.
var hookVariables = sync.OnceValue(func() (names []string) {
	// Without git, the first use of it returns the error.
	list, _ := exec.Command("git", "rev-parse", "--local-env-vars").Output()
	for name := range strings.FieldsSeq(string(list)) {
		// These two are settings of the user, not a place.
		if name != "GIT_CONFIG_PARAMETERS" && name != "GIT_CONFIG_COUNT" {
			names = append(names, name)
		}
	}
	return names
})

// Environ is the environment of this process for one that runs in another
// directory and on another working tree: without the variables that git gives to
// a hook, without PWD, and with absolute names of the temporary directories.
func Environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "PWD" || slices.Contains(hookVariables(), name)
	})
	for i, v := range env {
		switch name, path, _ := strings.Cut(v, "="); name {
		case "TMPDIR", "GOTMPDIR": // relative to the directory of this process
			if path, err := filepath.Abs(path); err == nil && !strings.HasSuffix(v, "=") {
				env[i] = name + "=" + path
			}
		}
	}
	return env
}

// maxOutput bounds what is kept of what a program prints to one stream. The
// longest are lists of files and packages.
const maxOutput = 64 << 20

// Run runs a program in the directory and returns what it prints. If the program
// fails, the error is the first line on its standard error that tells of one.
func Run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	return RunHolding(ctx, dir, env, nil, name, args...)
}

// RunHolding is Run with a file, or nil, that the program holds open as this process
// does, so that a lock of the file lasts until both have ended. Windows has no such
// locks.
func RunHolding(ctx context.Context, dir string, env []string, held *os.File, name string,
	args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(slices.Clip(env), "PWD="+dir) // which keeps the name of a directory that is a link
	if held != nil && runtime.GOOS != "windows" {
		cmd.ExtraFiles = []*os.File{held}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it can clean up
	cmd.WaitDelay = 5 * time.Second
	stdout, stderr := &Capped{Most: maxOutput}, &Capped{Most: 1 << 20}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil { // and not that a signal ended the program
		return stdout.String(), ctx.Err()
	}
	if _, ran := errors.AsType[*exec.ExitError](err); !ran {
		return "", err // there is no such program
	}
	if line := telling(stderr.String()); line != "" {
		return "", errors.New(line)
	}
	return "", fmt.Errorf("%s: %w", name, err)
}

// telling returns the first line that tells of an error. One that ends with a
// colon announces the next.
func telling(stderr string) (text string) {
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "go: downloading ") ||
			strings.Contains(line, "warning: ") {
			continue
		}
		text += strings.TrimPrefix(line, "fatal: ")
		if !strings.HasSuffix(text, ":") {
			break
		}
		text += " "
	}
	return strings.TrimSpace(text)
}

// A Capped buffer keeps Most bytes of what is written to it: the first, or the last.
type Capped struct {
	Most int
	Last bool
	text bytes.Buffer
}

func (c *Capped) Write(b []byte) (int, error) {
	n := len(b)
	if c.Last {
		b = b[max(0, n-c.Most):]
		c.text.Next(max(0, c.text.Len()+len(b)-c.Most))
	}
	c.text.Write(b[:min(c.Most-c.text.Len(), len(b))])
	return n, nil
}

func (c *Capped) String() string { return c.text.String() }
