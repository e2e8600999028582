package ratelimit

import (
	"testing"
	"time"
)

func TestLimiter_RateRecovers(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(time.Second, 40, func() time.Time { return now })
	n := 0
	for l.Wait("a") == 0 && l.Take("a") == 0 {
		n++
	}
	if n != 40 {
		t.Errorf("%d at once", n)
	}
	if wait := l.Take("a"); wait <= 0 || wait > time.Second || l.Wait("a") != wait {
		t.Errorf("wait %s", wait)
	}
	now = now.Add(time.Second)
	if l.Take("a") != 0 || l.Take("a") == 0 {
		t.Error("not exactly one more after the interval")
	}
}

func TestLimiter_Give(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(time.Second, 2, func() time.Time { return now })
	l.Give("a") // has no effect: nothing was taken
	n := 0
	for l.Take("a") == 0 {
		n++
	}
	if n != 2 {
		t.Errorf("%d at once, not two", n)
	}
	if l.Give("a"); l.Take("a") != 0 || l.Take("a") == 0 {
		t.Error("not exactly one more after one was given back")
	}
}
