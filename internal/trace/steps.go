package trace

import (
	"context"
	"sync"
	"time"
)

// Steps is a span with one child span after the other, for example of a session that begins. It is safe for concurrent
// use. On nil, and after the end, its methods do nothing.
type Steps struct {
	tracer *Tracer
	ctx    context.Context
	root   *Span

	mu    sync.Mutex
	step  *Span
	ended bool
}

// Steps starts a span and its first step, at a time that may be in the past.
func (t *Tracer) Steps(ctx context.Context, kind Kind, name, first string, at time.Time) *Steps {
	if t == nil {
		return nil
	}
	s := &Steps{tracer: t}
	s.ctx, s.root = t.start(ctx, kind, name, at)
	_, s.step = t.start(s.ctx, KindInternal, first, at)
	return s
}

// Root returns the span of all steps.
func (s *Steps) Root() *Span {
	if s == nil {
		return nil
	}
	return s.root
}

// Next ends the current step and starts another.
func (s *Steps) Next(name string) {
	if s != nil {
		s.NextAt(name, time.Now())
	}
}

// NextAt is Next at a time that may be in the past.
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

// End ends all spans.
func (s *Steps) End() { s.Fail("") }

// Fail ends all spans. If why is not empty, the current step and the root have failed.
func (s *Steps) Fail(why string) {
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
		s.root.Fail(why)
	}
	s.step.End()
	s.root.End()
}
