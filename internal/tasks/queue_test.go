package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueue_ProcessesOnceAndRetriesUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done, failing := map[string]int{}, 3
		e := NewQueue(Config{Name: "test", Parallel: 2, Log: slog.New(slog.DiscardHandler), Do: func(_ context.Context, agent string) error {
			mu.Lock()
			defer mu.Unlock()
			done[agent]++
			if agent == "bad" && done[agent] <= failing {
				return errors.New("failed")
			}
			return nil
		}})
		for range 5 {
			e.Add("good")
			e.Add("bad")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.Run(ctx) })
		synctest.Wait()
		mu.Lock()
		if done["good"] != 1 || done["bad"] != 1 {
			t.Errorf("added five times before Run: done %v", done)
		}
		mu.Unlock()
		time.Sleep(time.Minute) // of virtual time
		mu.Lock()
		if done["bad"] != failing+1 {
			t.Errorf("done %v", done)
		}
		mu.Unlock()
		e.Add("good")
		synctest.Wait()
		mu.Lock()
		if done["good"] != 2 {
			t.Errorf("added again: done %v", done)
		}
		mu.Unlock()
		cancel()
		owner.Wait()
	})
}

func TestQueue_KeyAddedWhileRunningRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := make(chan struct{}, 10), make(chan struct{})
		e := NewQueue(Config{Name: "test", Parallel: 4, Log: slog.New(slog.DiscardHandler), Do: func(context.Context, string) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.Run(ctx) })
		e.Add("a")
		<-begun
		e.Add("a")
		e.Add("a")
		synctest.Wait()
		if len(begun) != 0 {
			t.Error("one key runs twice at the same time")
		}
		close(goOn)
		synctest.Wait()
		if len(begun) != 1 {
			t.Errorf("%d more starts, want one", len(begun))
		}
		cancel()
		owner.Wait()
	})
}

func TestQueue_LimitsStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		count := 0
		e := NewQueue(Config{Name: "test", Parallel: 4, Interval: 20 * time.Millisecond, Burst: 100, Log: slog.New(slog.DiscardHandler), Do: func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			count++
			return nil
		}})
		for i := range 5000 {
			e.Add(fmt.Sprint(i))
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.Run(ctx) })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		mu.Lock()
		if count < 100+490 || count > 100+510 {
			t.Errorf("%d in ten seconds, want 100 at once and 50 a second", count)
		}
		mu.Unlock()
		for finished := false; !finished; {
			time.Sleep(time.Second)
			mu.Lock()
			finished = count == 5000
			mu.Unlock()
		}
		if took := time.Since(began); took < 97*time.Second || took > 100*time.Second {
			t.Errorf("all took %v", took)
		}
		cancel()
		owner.Wait()
	})
}

// A hostile agent can add its key at any rate. It must not delay other keys, and its last request must be served.
func TestQueue_MinIntervalPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := map[string]int{}
		added, seen := 0, 0 // of key loud: all, and those at its last start
		var e *Queue
		e = NewQueue(Config{Name: "test", Parallel: 4, MinInterval: time.Second, Log: slog.New(slog.DiscardHandler), Do: func(_ context.Context, agent string) error {
			mu.Lock()
			defer mu.Unlock()
			done[agent]++
			if agent != "loud" {
				return nil
			}
			if seen = added; done[agent]%2 == 0 {
				e.Add(agent) // also while it runs
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.Run(ctx) })
		for i := range 10_000 { // ten seconds
			mu.Lock()
			added++
			mu.Unlock()
			e.Add("loud")
			if i%5000 == 0 {
				e.Add("quiet")
				synctest.Wait()
				mu.Lock()
				if done["quiet"] != i/5000+1 {
					t.Errorf("quiet waits for loud: %v", done)
				}
				mu.Unlock()
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if done["loud"] < 4 || done["loud"] > 13 || done["quiet"] != 2 || seen != added {
			t.Errorf("done %v; the last start saw %d of %d", done, seen, added)
		}
		mu.Unlock()
		cancel()
		owner.Wait()
	})
}

func TestQueue_PausesDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		tried, succeeded, broken := 0, 0, true
		var log bytes.Buffer
		e := NewQueue(Config{Name: "test", Parallel: 4, Log: slog.New(slog.NewTextHandler(&log, nil)), Do: func(_ context.Context, agent string) error {
			mu.Lock()
			defer mu.Unlock()
			tried++
			if broken {
				return fmt.Errorf("write the status of %s: reach the API server: connection refused", agent)
			}
			succeeded++
			return nil
		}})
		for i := range 1000 {
			e.Add(fmt.Sprint(i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.Run(ctx) })
		time.Sleep(time.Minute)
		mu.Lock()
		if tried < 10 || tried > 100 {
			t.Errorf("tried %d times in a minute", tried)
		}
		broken = false
		mu.Unlock()
		time.Sleep(3 * time.Minute)
		mu.Lock()
		if succeeded != 1000 {
			t.Errorf("%d succeeded", succeeded)
		}
		mu.Unlock()
		cancel()
		owner.Wait()
		if n := strings.Count(log.String(), "Failed to run task"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}

func TestRunner_RetriesAndReplacesTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = r.Run(ctx) })
		var mu sync.Mutex
		old, current := 0, 0
		r.Add("a", func(context.Context) error { mu.Lock(); defer mu.Unlock(); old++; return errors.New("failed") })
		time.Sleep(time.Minute)
		mu.Lock()
		if old < 6 {
			t.Errorf("tried %d times in a minute", old)
		}
		tried := old
		mu.Unlock()
		r.Add("a", func(context.Context) error { mu.Lock(); defer mu.Unlock(); current++; return nil })
		time.Sleep(time.Minute)
		cancel()
		owner.Wait()
		if old != tried || current != 1 || len(r.tasks) > 0 {
			t.Errorf("the replaced task ran %d more times, the new one %d times, %d left", old-tried, current, len(r.tasks))
		}
	})
}
