package backoff

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff_DoublesUpToMaxAndResets(t *testing.T) {
	b := Backoff{Min: time.Second, Max: 5 * time.Second}
	var got []time.Duration
	for range 5 {
		got = append(got, b.Next())
	}
	b.Reset()
	got = append(got, b.Next())
	if want := []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9, 1e9}; !slices.Equal(got, want) {
		t.Errorf("pauses are %v, want %v", got, want)
	}
}

func TestBackoff_JitterShortensByAtMostHalf(t *testing.T) {
	for _, tc := range []struct {
		jitter float64
		want   time.Duration
	}{{0, 4 * time.Second}, {0.5, 6 * time.Second}, {1, 8 * time.Second}} {
		b := Backoff{Min: 8 * time.Second, Max: time.Minute, Jitter: func() float64 { return tc.jitter }}
		if got := b.Next(); got != tc.want {
			t.Errorf("jitter %v: pause %v, want %v", tc.jitter, got, tc.want)
		}
	}
}

func TestWait_WaitsForTheLongerPauseAndEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: time.Second, Max: time.Minute}
		began := time.Now()
		b.Wait(t.Context(), 0)
		b.Wait(t.Context(), 10*time.Second)
		if got := time.Since(began); got != 11*time.Second {
			t.Errorf("waited %v, want 11s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Sleep(ctx, time.Hour) {
			t.Error("Sleep reports a full pause after the context ended")
		}
		if !Sleep(t.Context(), time.Second) {
			t.Error("Sleep reports an interruption after a full pause")
		}
	})
}
