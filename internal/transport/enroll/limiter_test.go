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

func TestLimiter_RateRecovers(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLimiter(func() time.Time { return now })
	n := 0
	for l.take("a") == 0 {
		n++
	}
	if n != burst {
		t.Errorf("%d requests at once", n)
	}
	if wait := l.take("a"); wait <= 0 || wait > interval {
		t.Errorf("wait %s", wait)
	}
	now = now.Add(interval)
	if l.take("a") != 0 || l.take("a") == 0 {
		t.Error("not exactly one more request after the interval")
	}
}
