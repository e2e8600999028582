package redis

import (
	"math/rand/v2"
	"testing"
)

func TestFifo_KeepsOrderAndReusesMemory(t *testing.T) {
	var f fifo[int]
	next, want := 0, 0
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		if f.len() < 20 && random.IntN(2) == 0 {
			f.push(next)
			next++
		} else if f.len() > 0 {
			if last := *f.at(f.len() - 1); last != next-1 {
				t.Fatalf("newest item is %d, want %d", last, next-1)
			}
			if got := f.pop(); got != want {
				t.Fatalf("oldest item is %d, want %d", got, want)
			}
			want++
		}
		if f.len() != next-want {
			t.Fatalf("length is %d, want %d", f.len(), next-want)
		}
	}
	if cap(f.items) > 64 {
		t.Errorf("capacity is %d for 20 items", cap(f.items))
	}
}
