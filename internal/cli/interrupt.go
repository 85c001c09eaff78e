package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// UntilInterrupt returns a context that an interrupt ends. A second after it,
// another interrupt ends the program as it does by default; until then, it does
// nothing, because people press the keys twice.
func UntilInterrupt(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		time.Sleep(time.Second)
		signal.Stop(signals)
	}()
	return ctx
}
