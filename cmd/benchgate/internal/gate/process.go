package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
)

// maxStderr is how many bytes are kept of what a worker prints to standard error. A
// deadlock prints the stacks of all goroutines.
const maxStderr = 1 << 20

const workerGrace = 5 * time.Second // how long a worker may take to end

// A process is a running worker. What is asked of it and what it answers are lines of
// JSON.
type process struct {
	of       string        // what runs, in errors: "the tests of HEAD"
	module   string        // path of the module that it tests, or of the package: a panic is told with a line of it
	dir      string        // of the module, if that is known
	patience time.Duration // how long an answer may take
	mark     string        // with which answers begin; other lines are dropped
	most     int           // bytes of an answer
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	stderr   *execx.Capped
	killed   atomic.Pointer[string] // why the gate killed it, if it did
	hung     atomic.Bool            // because it gave no answer
	counter  *os.File               // of instructions; nil where they are not counted
	counted  uint64                 // at the end
	ended    error                  // how it ended
}

// run starts the worker. Of what it prints to standard error, the end is kept.
func (p *process) run(ctx context.Context, cmd *exec.Cmd) (err error) {
	p.cmd = cmd
	p.stderr = &execx.Capped{Most: maxStderr, Last: true}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = workerGrace
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.Cancel = func() error { return killGroup(p.cmd.Process) }
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.out = bufio.NewReader(out)
	p.counter, err = startCounted(p.cmd)
	return err
}

// A threadTime is how long a thread has had a CPU, and how long it was ready to run and
// others had it. A thread that sleeps is not ready.
type threadTime struct{ ran, queued time.Duration }

// queued returns how long the thread was queued that ran most between two moments: it does the
// work, and one of the runtime's may be queued all the time that the work sleeps.
func queued(before, after map[string]threadTime) (t time.Duration) {
	most := time.Duration(-1)
	for name, now := range after {
		if ran := now.ran - before[name].ran; ran > most {
			most, t = ran, now.queued-before[name].queued
		}
	}
	return t
}

// instructions is how many the process has executed, with what it has started; 0 if that is
// not known.
func (p *process) instructions() uint64 {
	if p.counter == nil {
		return p.counted
	}
	return readCounter(p.counter)
}

// line reads the next line that the worker answers, without its mark.
func (p *process) line() (answer []byte, err error) {
	timer := time.AfterFunc(p.patience, func() {
		p.hung.Store(true)
		p.kill(fmt.Sprintf("no answer in %v", p.patience))
	})
	defer timer.Stop()
	begins, wanted := true, false
	for {
		part, err := p.out.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if begins {
			part, wanted = bytes.CutPrefix(part, []byte(p.mark))
		}
		if wanted {
			answer = append(answer, part...)
		}
		switch {
		case len(answer) > p.most:
			p.kill(fmt.Sprintf("an answer of more than %d KiB", p.most>>10))
			return nil, bufio.ErrTooLong
		case err != nil && !full:
			return nil, err
		case wanted && !full:
			return answer, nil
		}
		begins = !full
	}
}

// hear reads an answer.
func (p *process) hear(answer any) error {
	line, err := p.line()
	if err != nil {
		return err
	}
	return json.Unmarshal(line, answer)
}

// say asks for something. A line fits in the pipe.
func (p *process) say(request any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// kill ends the worker and what it has started, at once. The first reason counts.
func (p *process) kill(why string) {
	p.killed.CompareAndSwap(nil, &why)
	killGroup(p.cmd.Process)
}

// close ends the worker, and returns how it ended. It may be called again.
func (p *process) close() error {
	if p.cmd.ProcessState != nil {
		return p.ended
	}
	p.in.Close()
	kill := time.AfterFunc(workerGrace, func() { killGroup(p.cmd.Process) })
	defer kill.Stop()
	io.Copy(io.Discard, p.out) // it may have more to say than the pipe holds
	p.ended = p.cmd.Wait()
	killGroup(p.cmd.Process) // what it has started and not waited for
	if p.counted = p.instructions(); p.counter != nil {
		p.counter.Close()
		p.counter = nil
	}
	return p.ended
}

// failed ends a worker that does not answer, and explains why.
func (p *process) failed(err error) *failure {
	gone := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if !gone {
		killGroup(p.cmd.Process) // it talks nonsense
	}
	ended := p.close()
	what := err.Error()
	said, tells, at := p.said(p.stderr.String())
	switch why := p.killed.Load(); {
	case why != nil:
		what = *why
	case ended != nil && gone && ended.Error() == "signal: killed":
		what = ended.Error()
	case tells:
		what = said
	case gone:
		what = "it ends without an answer"
		if ended != nil {
			what = ended.Error()
		}
		if said != "" {
			what += ": " + said
		}
	}
	f := newFailure(p.of, what)
	f.at = at
	f.hung = p.hung.Load()
	f.scarce = f.scarce && p.killed.Load() == nil
	return f
}

// tellings begin the line that tells why a Go program ends by itself: what the runtime says,
// and what package flag does.
var tellings = [...]string{"panic: ", "fatal error: ", "SIGABRT: ", "SIGSEGV: ",
	"flag provided but not defined: ", "flag needs an argument: ", "bad flag syntax: ", "invalid value \"", "invalid boolean value \""}

// frame is the second line of a function in the stack of a goroutine.
var frame = regexp.MustCompile(`^\t(.+\.go):(\d+)`)

// said returns the line of a process's standard error that tells why it ended, of a panic
// with its place. If none tells, it is the last. Of a long one it is the beginning.
func (p *process) said(stderr string) (line string, tells bool, at place) {
	function := "" // of a stack
	for l := range strings.Lines(stderr) {
		text := strings.TrimSpace(l)
		m := frame.FindStringSubmatch(l)
		switch {
		case !tells && text != "":
			line = short(text)
			tells = slices.ContainsFunc(tellings[:], func(t string) bool { return strings.HasPrefix(text, t) })
		case !tells:
		case m != nil && !strings.HasPrefix(function, "panic(") && !strings.HasPrefix(function, "runtime.") &&
			!strings.HasPrefix(function, "testing."):
			own := p.owns(function)
			if own || at.file == "" {
				at.file = m[1]
				at.line, _ = strconv.Atoi(m[2])
			}
			if own {
				return p.with(line, at), true, at
			}
		case text == "" && function != "": // the end of the first stack
			return p.with(line, at), true, at
		case strings.HasSuffix(text, ")"):
			function = text
		}
	}
	return p.with(line, at), tells, at
}

// owns reports whether a function, as a stack names it, is of the module under test.
func (p *process) owns(function string) bool {
	rest, ok := strings.CutPrefix(strings.ReplaceAll(function, "%2e", "."), p.module)
	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "_test.") || strings.HasPrefix(rest, "/") &&
		!strings.HasPrefix(rest, "/zz_"))
}

// with is a line with its place in the module.
func (p *process) with(line string, at place) string {
	if at.file == "" {
		return line
	}
	file := strings.TrimPrefix(at.file, p.module+"/") // of a build with -trimpath
	if rel, err := filepath.Rel(p.dir, at.file); err == nil && filepath.IsLocal(rel) {
		file = filepath.ToSlash(rel)
	}
	return fmt.Sprintf("%s (%s:%d)", line, file, at.line)
}
