package principal

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

func TestErrandsAreDoneOnceEachAndTriedUntilTheyWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done, failing := map[string]int{}, 3
		e := (&workQueue{what: "test", parallel: 2, log: slog.New(slog.DiscardHandler), do: func(_ context.Context, agent string) error {
			mu.Lock()
			defer mu.Unlock()
			done[agent]++
			if agent == "bad" && done[agent] <= failing {
				return errors.New("away")
			}
			return nil
		}}).prepare()
		for range 5 {
			e.add("good")
			e.add("bad")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.run(ctx) })
		synctest.Wait()
		if done["good"] != 1 || done["bad"] != 1 {
			t.Errorf("asked for five times before it began: done %v", done)
		}
		time.Sleep(time.Minute) // of virtual time
		if done["bad"] != failing+1 || e.left() != 0 {
			t.Errorf("done %v, %d left", done, e.left())
		}
		e.add("good")
		synctest.Wait()
		if done["good"] != 2 {
			t.Errorf("asked for again: done %v", done)
		}
		cancel()
		owner.Wait()
	})
}

func TestWhatIsAskedForMeanwhileIsDoneAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := make(chan struct{}, 10), make(chan struct{})
		e := (&workQueue{what: "test", parallel: 4, log: slog.New(slog.DiscardHandler), do: func(context.Context, string) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}}).prepare()
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.run(ctx) })
		e.add("a")
		<-begun
		e.add("a")
		e.add("a")
		synctest.Wait()
		if len(begun) != 0 {
			t.Error("two at once for one agent")
		}
		close(goOn)
		synctest.Wait()
		if len(begun) != 1 || e.left() != 0 {
			t.Errorf("%d more, %d left; want one and none", len(begun), e.left())
		}
		cancel()
		owner.Wait()
	})
}

func TestACrowdOfErrandsIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		count := 0
		e := (&workQueue{what: "test", parallel: 4, interval: 20 * time.Millisecond, burst: 100, log: slog.New(slog.DiscardHandler), do: func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			count++
			return nil
		}}).prepare()
		for i := range 5000 {
			e.add(fmt.Sprint(i))
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.run(ctx) })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if count < 100+490 || count > 100+510 {
			t.Errorf("%d in ten seconds, want 100 at once and 50 a second", count)
		}
		for e.left() > 0 {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took < 97*time.Second || took > 100*time.Second {
			t.Errorf("all took %v", took)
		}
		cancel()
		owner.Wait()
	})
}

// What asks may be an agent, and may be hostile: what it is asked for is done, but
// not as often.
func TestErrandsOfOneAgentAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := map[string]int{}
		asked, seen := 0, 0 // by loud, and what was asked for when it was last done
		var e *workQueue
		e = (&workQueue{what: "test", parallel: 4, minInterval: time.Second, log: slog.New(slog.DiscardHandler), do: func(_ context.Context, agent string) error {
			mu.Lock()
			defer mu.Unlock()
			done[agent]++
			if agent != "loud" {
				return nil
			}
			if seen = asked; done[agent]%2 == 0 {
				e.add(agent) // while it is done, too
			}
			return nil
		}}).prepare()
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.run(ctx) })
		for i := range 10_000 { // ten seconds
			mu.Lock()
			asked++
			mu.Unlock()
			e.add("loud")
			if i%5000 == 0 {
				e.add("calm")
				synctest.Wait()
				if done["calm"] != i/5000+1 {
					t.Errorf("calm waits for loud: %v", done)
				}
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		if done["loud"] < 4 || done["loud"] > 13 || done["calm"] != 2 || seen != asked || e.left() > 0 {
			t.Errorf("done %v; the last knew of %d of %d; %d are left", done, seen, asked, e.left())
		}
		cancel()
		owner.Wait()
	})
}

func TestWorkQueue_PausesDuringWriteOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		tried, broken := 0, true
		var log bytes.Buffer
		e := (&workQueue{what: "test", parallel: 4, log: slog.New(slog.NewTextHandler(&log, nil)), do: func(_ context.Context, agent string) error {
			mu.Lock()
			defer mu.Unlock()
			tried++
			if broken {
				return fmt.Errorf("write the status of %s: reach the API server: connection refused", agent)
			}
			return nil
		}}).prepare()
		for i := range 1000 {
			e.add(fmt.Sprint(i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = e.run(ctx) })
		time.Sleep(time.Minute)
		mu.Lock()
		if tried < 10 || tried > 100 {
			t.Errorf("tried %d times in a minute", tried)
		}
		broken = false
		mu.Unlock()
		time.Sleep(time.Minute)
		if n := e.left(); n > 0 {
			t.Errorf("%d are left", n)
		}
		cancel()
		owner.Wait()
		if n := strings.Count(log.String(), "does not work"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
	})
}
