package search

import (
	"context"
	"sync"
	"time"
)

// replicaTimes remembers when the other replicas were asked.
type replicaTimes struct {
	mu         sync.Mutex // held while they are asked, so that requests share the answers
	asked      time.Time
	unanswered int
}

const (
	replicaInterval = 5 * time.Second // between two requests to a replica
	replicaTimeout  = time.Second
	maxReplicas     = 16
)

// askReplicas asks the other principal replicas when their agents were last in sync. It returns how many did not answer.
func (s *Server) askReplicas(ctx context.Context) int {
	r := &s.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) < replicaInterval {
		return r.unanswered
	}
	// Other requests use the answers too, so the end of this one does not count.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicaTimeout)
	defer cancel()
	others := s.cfg.Others()
	answered := make(chan bool, len(others))
	for i, address := range others {
		if address == "" || i >= maxReplicas {
			answered <- false
			continue
		}
		go func() {
			times, err := s.cfg.InSyncOf(ctx, address)
			if err != nil {
				s.cfg.Log.DebugContext(ctx, "Failed to ask a principal replica", "address", address, "error", err)
			}
			now := time.Now().Unix()
			for agent, at := range times {
				s.InSync(agent, time.Unix(min(at, now), 0)) // its clock may be ahead
			}
			answered <- err == nil
		}()
	}
	r.unanswered = 0
	for range others { // replicaTimeout ends each
		if !<-answered {
			r.unanswered++
		}
	}
	r.asked = time.Now()
	return r.unanswered
}

// InSyncTimes returns when agents were last in sync, in seconds.
func (s *Server) InSyncTimes() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := make(map[string]int64, len(s.inSync))
	for agent, at := range s.inSync {
		times[agent] = at.Unix()
	}
	return times
}
