//go:build !js && !plan9 && !wasip1

package cli

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
)

// IgnoreBrokenPipe makes writing to a closed pipe an error, where it would end the
// process.
func IgnoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// IsBrokenPipe reports whether the error is that of writing to a pipe that nobody reads.
func IsBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// UntilHangup returns a context that also ends when the terminal goes away, unless
// the process ignores that, as under nohup.
func UntilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
