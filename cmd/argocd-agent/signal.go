package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// signalled is the cause of a context that a signal has ended.
type signalled struct{ signal os.Signal }

func (s signalled) Error() string { return "received signal: " + s.signal.String() }

// untilSignal returns a context that the first SIGINT or SIGTERM cancels, so
// that the program drains and ends. Whoever sends a second one does not want to
// wait: exit is called at once. The function that is returned stops listening.
func untilSignal(ctx context.Context, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for count := 1; ; count++ {
			select {
			case <-quit:
				return
			case s := <-signals:
				if count == 1 {
					cancel(signalled{s})
					continue
				}
				exit(exitCodeOf(s))
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		<-ended
		cancel(fmt.Errorf("the program has ended: %w", context.Canceled))
	}
}

// exitCodeOf is what a shell reports of a program that a signal has ended.
func exitCodeOf(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailure
}
