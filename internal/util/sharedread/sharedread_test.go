package sharedread

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// Calls share a read that starts after them, and never one that started before.
func TestReader_SharesNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, proceed := 0, make(chan struct{})
		r := New(func() (int, error) {
			reads++
			n := reads
			<-proceed
			return n, nil
		})
		var wg sync.WaitGroup
		call := func(want int) {
			wg.Go(func() {
				if n, err := r.Read(t.Context()); n != want || err != nil {
					t.Errorf("%d, %v, want %d", n, err, want)
				}
			})
		}
		call(1)
		synctest.Wait()
		for range 10 {
			call(2)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Read(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		synctest.Wait()
		close(proceed)
		wg.Wait()
		if reads != 2 {
			t.Errorf("%d reads", reads)
		}
	})
}

func TestReader_ReadsAgainAfterAnError(t *testing.T) {
	failed, reads := errors.New("failed"), 0
	r := New(func() (int, error) {
		if reads++; reads == 1 {
			return 0, failed
		}
		return reads, nil
	})
	if _, err := r.Read(t.Context()); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if n, err := r.Read(t.Context()); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
