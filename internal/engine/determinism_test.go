package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// script plays a fixed but varied course of events and returns all that both sides said and did.
func script(t *testing.T, seed uint64) string {
	t.Helper()
	var out strings.Builder
	w := newWorld(t, Tuning{DeletionBudgetItems: 3, Window: 2000})
	w.check = false
	w.trace = func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	w.hub.do(Tick{})
	w.agent.do(Tick{})
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range 400 {
		key := Key{Name: fmt.Sprintf("app%d", r.IntN(120))}
		scope := []string{"project", "application", "application", "command"}[r.IntN(4)]
		switch n := r.IntN(20); {
		case n < 9:
			w.hub.store.put(scope, key, func(o *object) { o.content, o.needs = fmt.Sprint("v", i), Key{Name: "app1"} })
		case n < 11:
			w.hub.store.delete(scope, key)
		case n < 13:
			w.agent.store.put("status", key, func(o *object) { o.content = fmt.Sprint("s", i) })
		case n == 13:
			if err := w.hub.run([]string{"misses", scope, fmt.Sprintf("app%d..%d", i%7, i%7+30)}); err != nil {
				t.Fatal(err)
			}
		case n == 14:
			w.agent.store.refuse["application "+key.String()] = refusal{Invalid, "no"}
		case n == 15:
			w.cut(false)
			w.connect()
		case n == 16:
			w.agent.store.slow = !w.agent.store.slow
			w.agent.store.drain()
		case n == 17:
			w.wait(Time(r.IntN(70)) * Second)
		default:
			w.deliver()
		}
	}
	w.wait(100 * Second)
	return out.String()
}

// TestStep_IsDeterministic: nothing depends on the order of a map, on memory or on time.
func TestStep_IsDeterministic(t *testing.T) {
	for seed := range uint64(5) {
		a, b := script(t, seed), script(t, seed)
		if a != b {
			t.Fatalf("seed %d:\n%s", seed, firstDifference(a, b))
		}
		if len(a) < 5000 {
			t.Errorf("seed %d says too little to prove anything: %d bytes", seed, len(a))
		}
	}
}
