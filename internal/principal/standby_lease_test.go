package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

// memoryLease is a Lease of several replicas. Requests of a replica take time and can fail.
type memoryLease struct {
	mu              sync.Mutex
	version         int
	holder          string
	edits, writes   int
	fail            func(identity string) (before, after time.Duration, err error) // if not nil
	failAfterWrites bool
}

// client is the Lease as one replica reaches it.
type leaseClient struct {
	*memoryLease
	identity string
}

var errUnreachable = errors.New("the API server is not reachable")

func (c leaseClient) request(ctx context.Context, do func() error) error {
	var before, after time.Duration
	var failed error
	if c.fail != nil {
		before, after, failed = c.fail(c.identity)
	}
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(before); err != nil {
		return err
	}
	if failed != nil && !c.failAfterWrites {
		return failed
	}
	c.mu.Lock()
	err := do()
	c.mu.Unlock()
	if waited := wait(after); waited != nil {
		return waited // the request had an effect, and its answer is lost
	}
	return errors.Join(err, failed)
}

func (c leaseClient) read(ctx context.Context) (holder, version string, _ time.Duration, err error) {
	err = c.request(ctx, func() error {
		if c.version > 0 {
			version = strconv.Itoa(c.version)
		}
		holder = c.holder
		return nil
	})
	return holder, version, standbyLeaseTime, err
}

func (c leaseClient) write(ctx context.Context, version, holder string) (written string, err error) {
	err = c.request(ctx, func() error {
		if version == "" && c.version > 0 || version != "" && version != strconv.Itoa(c.version) {
			return errLeaseChanged
		}
		c.version++
		c.writes++
		c.holder, written = holder, strconv.Itoa(c.version)
		return nil
	})
	return written, err
}

// edit changes the Lease without its holder, as a user can.
func (m *memoryLease) edit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	m.edits++
}

func newStandbyLease(m *memoryLease, identity string) *standbyLease {
	return &standbyLease{store: leaseClient{m, identity}, identity: identity, log: slog.New(slog.DiscardHandler)}
}

func untilDone(ctx context.Context) error { <-ctx.Done(); return nil }

func TestStandbyLease_IsGivenUpAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryLease{}
		ctx, stop := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- newStandbyLease(m, "a").run(ctx, untilDone) }()
		time.Sleep(time.Hour)
		if m.holder != "a" || m.writes < 1000 {
			t.Fatalf("holder is %q after %d writes", m.holder, m.writes)
		}
		stop()
		if err := <-first; err != nil || m.holder != "" {
			t.Fatalf("holder is %q, error %v", m.holder, err)
		}
		began, held := time.Now(), make(chan struct{})
		ctx, stop = context.WithCancel(t.Context())
		go func() {
			first <- newStandbyLease(m, "b").run(ctx, func(ctx context.Context) error { close(held); return untilDone(ctx) })
		}()
		<-held
		if waited := time.Since(began); waited > standbyLeaseRenewal {
			t.Errorf("the next replica waited %v for a Lease that was given up", waited)
		}
		stop()
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

func TestStandbyLease_SurvivesAnEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryLease{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- newStandbyLease(m, "a").run(ctx, untilDone) }()
		for range 10 {
			time.Sleep(time.Minute)
			m.edit()
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the holder lost its Lease by an edit: %v", err)
		}
	})
}

func TestStandbyLease_IsLostWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		m := &memoryLease{}
		m.fail = func(string) (time.Duration, time.Duration, error) {
			if cut.Load() {
				return 0, 0, errUnreachable
			}
			return 0, 0, nil
		}
		ended := make(chan error, 1)
		go func() { ended <- newStandbyLease(m, "a").run(t.Context(), untilDone) }()
		time.Sleep(time.Minute)
		began := time.Now()
		cut.Store(true)
		if err := <-ended; !errors.Is(err, errLeaseLost) {
			t.Fatalf("error is %v", err)
		}
		if took := time.Since(began); took > standbyLeaseTime-standbyLeaseMargin {
			t.Errorf("the holder stopped after %v", took)
		}
	})
}

func TestStandbyLease_EndsWithTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, failed := &memoryLease{}, errors.New("failed")
		if err := newStandbyLease(m, "a").run(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) || m.holder != "" {
			t.Errorf("error is %v, holder %q", err, m.holder)
		}
	})
}

// Requests fail, are slow, and have effects although their answer is lost. Clocks run at the same speed.
func TestStandbyLease_HasOneHolder(t *testing.T) {
	var terms atomic.Int32
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				faulty := true
				m := &memoryLease{failAfterWrites: seed%2 == 1}
				m.fail = func(string) (before, after time.Duration, err error) {
					mu.Lock()
					defer mu.Unlock()
					if !faulty {
						return 0, 0, nil
					}
					if random.IntN(3) == 0 {
						err = errUnreachable
					}
					return time.Duration(random.Int64N(int64(3 * time.Second))), time.Duration(random.Int64N(int64(3 * time.Second))), err
				}
				var running atomic.Int32
				do := func(ctx context.Context) error {
					if running.Add(1) > 1 {
						t.Error("two replicas hold the Lease")
					}
					defer running.Add(-1)
					terms.Add(1)
					return untilDone(ctx)
				}
				ctx, stop := context.WithCancel(t.Context())
				var all errgroup.Group
				for i := range 3 {
					all.Go(func() error {
						for ctx.Err() == nil { // the process starts again
							_ = newStandbyLease(m, fmt.Sprint("replica-", i)).run(ctx, do)
							time.Sleep(time.Second)
						}
						return nil
					})
				}
				time.Sleep(30 * time.Minute)
				mu.Lock()
				faulty = false
				mu.Unlock()
				time.Sleep(time.Minute)
				if running.Load() != 1 {
					t.Errorf("%d replicas hold the Lease after the faults", running.Load())
				}
				stop()
				_ = all.Wait()
			})
		})
	}
	if terms.Load() < 2*60 {
		t.Errorf("a replica got the Lease only %d times; the faults have too little effect", terms.Load())
	}
}
