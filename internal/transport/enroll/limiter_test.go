package enroll

import (
	"strconv"
	"testing"
	"time"
)

func TestLimiter_JoinsDoNotBlockRenewals(t *testing.T) {
	l := NewLimiter(time.Now)
	for i := range maxConcurrent {
		if _, err := l.Begin(strconv.Itoa(i), true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Begin("one more", true); err == nil {
		t.Error("the number of concurrent joins is not limited")
	}
	done, err := l.Begin("w1", false)
	if err != nil {
		t.Fatalf("an agent cannot renew: %v", err)
	}
	done()
}

func TestLimiter_RateOfCaller(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLimiter(func() time.Time { return now })
	begin := func() bool {
		done, err := l.Begin("a", false)
		if err == nil {
			done()
		}
		return err == nil
	}
	n := 0
	for begin() {
		n++
	}
	if n != burst {
		t.Errorf("%d requests at once", n)
	}
	now = now.Add(interval)
	if !begin() || begin() {
		t.Error("not exactly one more request after the interval")
	}
}
