package cli

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWarningOnTerminal: a terminal shows the colour, unless NO_COLOR is set or the
// terminal is dumb.
func TestWarningOnTerminal(t *testing.T) {
	leader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	defer leader.Close()
	if err := unix.IoctlSetPointerInt(int(leader.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	n, err := unix.IoctlGetInt(int(leader.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	defer terminal.Close()
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
