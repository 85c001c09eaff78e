//go:build js || plan9 || wasip1

package cli

import "context"

// IgnoreBrokenPipe does nothing: this system has no such signal.
func IgnoreBrokenPipe() {}

// IsBrokenPipe reports false: this system has no such error.
func IsBrokenPipe(error) bool { return false }

// UntilHangup returns a context that ends with ctx alone: this system has no such
// signal.
func UntilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
