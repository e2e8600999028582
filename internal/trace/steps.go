package trace

import (
	"context"
	"sync"
	"time"
)

// Steps is a span that is one step after the other, each a span within it: a
// session that comes about. Its methods may be called from anywhere; on nil, and
// after the end, they do nothing.
type Steps struct {
	tracer *Tracer
	ctx    context.Context
	whole  *Span

	mu    sync.Mutex
	step  *Span
	ended bool
}

// Steps begins a span and its first step, at a time that may be past.
func (t *Tracer) Steps(ctx context.Context, kind Kind, name, first string, at time.Time) *Steps {
	if t == nil {
		return nil
	}
	s := &Steps{tracer: t}
	s.ctx, s.whole = t.start(ctx, kind, name, at)
	_, s.step = t.start(s.ctx, KindInternal, first, at)
	return s
}

// Root is the span that the steps are within.
func (s *Steps) Root() *Span {
	if s == nil {
		return nil
	}
	return s.whole
}

// Next ends the step under way and begins another.
func (s *Steps) Next(name string) {
	if s != nil {
		s.NextAt(name, time.Now())
	}
}

// NextAt is Next at a time that may be past.
func (s *Steps) NextAt(name string, at time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.step.endAt(at)
	_, s.step = s.tracer.start(s.ctx, KindInternal, name, at)
}

// End ends the step under way, and the whole.
func (s *Steps) End() { s.end("") }

// Fail ends them, and says why they came to nothing. What has come to an end
// before stays as it was.
func (s *Steps) Fail(why string) { s.end(why) }

func (s *Steps) end(why string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	if why != "" {
		s.step.Fail(why)
		s.whole.Fail(why)
	}
	s.step.End()
	s.whole.End()
}
