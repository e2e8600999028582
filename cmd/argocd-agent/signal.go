package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signalled is the cause of a context that a signal has canceled.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "received signal: " + s.String() }

// untilSignal returns a context that the first SIGINT or SIGTERM cancels, so that the process shuts down gracefully. A
// second signal calls exit at once, with the code that a shell reports for it. The returned function stops both.
func untilSignal(ctx context.Context, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s, ok := <-signals; ok {
			cancel(signalled{s})
		}
		for s := range signals {
			if number, ok := s.(syscall.Signal); ok {
				exit(128 + int(number))
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-ended
		cancel(nil)
	}
}
