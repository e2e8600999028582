package engine

import (
	"fmt"
	"testing"
)

func benchKey(i int) Key {
	return Key{Namespace: fmt.Sprintf("team-%d", i%50), Name: fmt.Sprintf("application-%05d", i)}
}

// BenchmarkDigestUpdate changes the version of one of 10,000 items.
func BenchmarkDigestUpdate(b *testing.B) {
	var d Digest
	hashes := make([]KeyHash, 10_000)
	for i := range hashes {
		hashes[i] = benchKey(i).Hash()
		d.Set(hashes[i], Version{1, uint64(i)})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		d.Set(hashes[i%len(hashes)], Version{2, uint64(i)})
	}
}

// benchWorld has one scope of 10,000 items, equal on both sides.
func benchWorld(b reporter) *world {
	w := newWorld(b, Tuning{})
	w.check = false
	for _, s := range []*side{w.hub, w.agent} {
		s.cfg.Scopes = s.cfg.Scopes[1:2]
		s.cfg.Scopes[0].DependsOn = ""
		for i := range 10_000 {
			s.store.of("application")[benchKey(i)] = &object{content: fmt.Sprintf("{\"spec\":%d}", i), owned: true}
		}
		s.boot()
		s.do(Tick{})
	}
	w.connect()
	w.deliver()
	if err := w.equal("application"); err != nil {
		b.Fatalf("%v", err)
	}
	return w
}

// BenchmarkResume opens a new session between two sides of 10,000 items, of which some have changed. It reports all
// bytes except the handshake and the contents.
func BenchmarkResume(b *testing.B) {
	for _, changed := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			w := benchWorld(b)
			down, up := 0, 0
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				b.StopTimer()
				w.cut(false)
				for i := range changed {
					w.hub.store.put("application", benchKey(i*7), func(o *object) { o.content = fmt.Sprintf("{\"spec\":\"%d/%d\"}", i, n) })
				}
				w.hub.bytes, w.agent.bytes = 0, 0
				b.StartTimer()
				w.connect()
				w.deliver()
				down, up = w.hub.bytes-estimate(Welcome{}), w.agent.bytes-estimate(Hello{})
			}
			b.StopTimer()
			b.ReportMetric(float64(down), "down-bytes/op")
			b.ReportMetric(float64(up), "up-bytes/op")
			if err := w.equal("application"); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkStep is the way of one change through both sides, to the answer.
func BenchmarkStep(b *testing.B) {
	w := benchWorld(b)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		w.hub.store.put("application", benchKey(n%10_000), func(o *object) { o.content = fmt.Sprintf("{\"spec\":\"%d\"}", n) })
		w.deliver()
	}
}
