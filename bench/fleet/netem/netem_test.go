package netem

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// scripted returns the given numbers, then ones.
func scripted(numbers ...float64) func() float64 {
	return func() float64 {
		if len(numbers) == 0 {
			return 1
		}
		n := numbers[0]
		numbers = numbers[1:]
		return n
	}
}

func TestLoss_DelaysByOneTimeout(t *testing.T) {
	near, far := Profile{Latency: 10 * time.Millisecond, Loss: 0.1}, Profile{Latency: 80 * time.Millisecond, Loss: 0.1}
	for _, c := range []struct {
		name    string
		profile Profile
		size    int
		random  func() float64
		want    time.Duration
	}{
		{"nothing lost", near, 1000, scripted(0.5), 0},
		{"lost once", near, 1000, scripted(0.05, 0.5), 200 * time.Millisecond},
		{"lost twice: twice as long the second time", near, 1000, scripted(0.05, 0.05, 0.5), 600 * time.Millisecond},
		{"two round trips are longer than the least", far, 1000, scripted(0.05, 0.5), 320 * time.Millisecond},
		{"the third of three segments", near, 4000, scripted(0.5, 0.5, 0.05, 0.5), 200 * time.Millisecond},
		{"two of three at once", near, 4000, scripted(0.05, 0.5, 0.05, 0.5, 0.5), 200 * time.Millisecond},
	} {
		if got := c.profile.lag(c.size, c.random); got != c.want {
			t.Errorf("%s: %v instead of %v", c.name, got, c.want)
		}
	}
}

func TestLoss_HasConfiguredRate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	w, lost := Profile{Loss: 0.01}, 0
	for range 100_000 {
		if w.lag(segment, random.Float64) > 0 {
			lost++
		}
	}
	if lost < 900 || lost > 1100 {
		t.Errorf("%d of 100,000 were lost, at one percent", lost)
	}
}

// pair returns an in-memory connection with faults at the near end.
func pair(w Profile, counters *Counters) (near, far net.Conn) {
	a, b := net.Pipe()
	return w.wrap(a, rand.New(rand.NewPCG(w.Seed, 1)), counters), b
}

func TestConn_BytesArriveInOrderAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters Counters
		near, far := pair(Profile{Latency: 50 * time.Millisecond, Loss: 0.2, Seed: 7}, &counters)
		var sent []byte
		for i := range 200 {
			sent = append(sent, bytes.Repeat([]byte{byte(i)}, 500)...)
		}
		began := time.Now()
		go func() {
			for p := sent; len(p) > 0; p = p[500:] {
				if _, err := near.Write(p[:500]); err != nil {
					t.Error(err)
				}
			}
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(far, got[:1]); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 50*time.Millisecond {
			t.Errorf("the first byte took %v", took)
		}
		if _, err := io.ReadFull(far, got[1:]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, sent) {
			t.Error("what arrived is not what was sent")
		}
		if took := time.Since(began); took < 250*time.Millisecond || counters.Late.Load() == 0 {
			t.Errorf("all took %v with %d losses", took, counters.Late.Load())
		}
		go func() { _, _ = far.Write([]byte("answer")) }()
		if _, err := io.ReadFull(near, got[:6]); err != nil || string(got[:6]) != "answer" {
			t.Errorf("answer: %q, %v", got[:6], err)
		}
		_ = near.Close()
		_ = far.Close()
	})
}

func TestConn_DeadlineEndsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(Profile{Latency: time.Second}, &Counters{})
		_ = near.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		_ = near.Close()
		_ = far.Close()
	})
}

func TestConn_BreaksAtConfiguredRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters Counters
		var ends []net.Conn
		for i := range uint64(200) {
			near, far := pair(Profile{Cuts: 6, Seed: i}, &counters)
			ends = append(ends, near, far)
		}
		time.Sleep(10 * time.Minute) // 1 - 1/e of them break in this time
		if n := counters.Cuts.Load(); n < 100 || n > 150 {
			t.Errorf("%d of 200 broke within 10 minutes, at six an hour", n)
		}
		for _, c := range ends {
			_ = c.Close()
		}
	})
}
