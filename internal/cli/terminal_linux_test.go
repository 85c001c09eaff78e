package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a terminal, and what reads what is written to it.
func openTerminal(t *testing.T) (leader, terminal *os.File) {
	leader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	t.Cleanup(func() { leader.Close() })
	if err := unix.IoctlSetPointerInt(int(leader.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	n, err := unix.IoctlGetInt(int(leader.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	t.Cleanup(func() { terminal.Close() })
	return leader, terminal
}

// TestWarningOnTerminal: a terminal shows the colour, unless NO_COLOR is set or the
// terminal is dumb.
func TestWarningOnTerminal(t *testing.T) {
	leader, terminal := openTerminal(t)
	for _, c := range []struct{ noColor, term, want string }{
		{"", "xterm", "\x1b[1;33mtext\x1b[0m\r\n"},
		{"1", "xterm", "text\r\n"},
		{"", "dumb", "text\r\n"},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		Warning(&FirstError{W: terminal}, "text")
		b := make([]byte, 100)
		n, err := leader.Read(b)
		if got := string(b[:n]); got != c.want || err != nil {
			t.Errorf("NO_COLOR=%s TERM=%s: %q, %v, want %q", c.noColor, c.term, got, err, c.want)
		}
	}
}

// TestColumns: lines are as long as COLUMNS says, else as the terminal, else 80.
func TestColumns(t *testing.T) {
	_, terminal := openTerminal(t)
	var file bytes.Buffer
	for _, c := range []struct {
		columns string
		width   uint16 // of the terminal
		w       io.Writer
		want    int
	}{
		{"", 0, &file, 80},
		{"", 120, &FirstError{W: terminal}, 120},
		{"", 0, terminal, 80},
		{"", 3, terminal, 24},
		{"100", 120, terminal, 100},
		{"100", 0, &file, 100},
		{"wide", 120, terminal, 120},
		{"-5", 120, terminal, 120},
		{"0", 0, &file, 80},
		{"1", 0, &file, 24},
	} {
		t.Setenv("COLUMNS", c.columns)
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ,
			&unix.Winsize{Row: 24, Col: c.width}); err != nil {
			t.Skip("the terminal has no width: ", err)
		}
		if got := Columns(c.w); got != c.want {
			t.Errorf("COLUMNS=%s, a terminal of %d: %d, want %d", c.columns, c.width, got, c.want)
		}
	}
}
