//go:build !js && !plan9 && !wasip1

package cli

import (
	"context"
	"os/signal"
	"syscall"
)

// IgnoreBrokenPipe makes writing to a closed pipe an error, where it would end the
// process.
func IgnoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// UntilHangup returns a context that also ends when the terminal goes away, unless
// the process ignores that, as under nohup.
func UntilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
