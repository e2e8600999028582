package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// heartbeat prints the start of a build and repeats it regularly, so that a long build does not look like a hang. The
// returned function ends it.
func heartbeat(out io.Writer, title string, since time.Time) (stop func()) {
	fmt.Fprintf(out, "%s: building…\n", title)
	done := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() {
		ticker := time.NewTicker(30 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(out, "%s: still building, %s\n", title, seconds(since))
			}
		}
	})
	return func() { close(done); beat.Wait() }
}

// lock permits one build at a time. The kernel releases it when its holder ends. A second build waits and reports it.
func (b *Builder) lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(b.Cache, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	for reported := false; ; reported = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !reported {
			fmt.Fprintln(b.Progress, "another build is running: waiting for it")
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
