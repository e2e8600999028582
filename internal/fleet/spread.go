package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// Spreader keeps the agents evenly spread over the principal replicas. A replica that has more sessions than its share
// asks some of its agents to connect again. The Service in front of the replicas then selects one for each of them.
//
// The replicas need no agreement: each one knows the numbers of the others from their Leases, and only a replica with more
// than its share acts. A number can be as old as a renewal of the Lease, which is the shortest pause between two rounds.
type Spreader struct {
	replicas *Replicas
	sessions func() []SpreadSession
	log      *slog.Logger
	moved    atomic.Uint64
	draining context.Context // ends when Drain begins
	drain    context.CancelFunc
}

// SpreadSession is a session of this replica.
type SpreadSession struct {
	Since   time.Time
	Used    bool                // a user has a log, a terminal or a request open
	Move    func(reason string) // asks the agent to connect again
	Arrived func() bool         // reports whether another replica has a newer session of the agent
}

const (
	// youngestMoved protects sessions that have just begun: the agent was moved here, or compares its objects.
	youngestMoved = time.Minute

	longestSpreadPause = time.Hour

	// Bounds of the agents that a round moves. A sixth each time spreads a fleet within five minutes.
	leastMoved, mostMoved = 20, 500

	// mostWaits bounds how many renewals of the Lease a round waits for agents that do not come back: a minute.
	mostWaits = 6

	// drainPerSecond is how many agents are asked per second for each replica that accepts them. That is half of the handshakes
	// that a principal on two cores completes.
	drainPerSecond = 100
	drainInterval  = 100 * time.Millisecond
)

// NewSpreader returns a Spreader. sessions returns the sessions of this replica.
func NewSpreader(replicas *Replicas, sessions func() []SpreadSession, log *slog.Logger) *Spreader {
	s := &Spreader{replicas: replicas, sessions: sessions, log: log}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Moved returns how many agents were asked to connect to another replica.
func (s *Spreader) Moved() uint64 { return s.moved.Load() }

// Run spreads agents until ctx ends or Drain begins. If a load balancer sends agents back to the replica that they came from,
// rounds have no effect, and the pauses between them grow. While agents of the last round are not back, because the hub is
// busy, no others are asked.
func (s *Spreader) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	pause, before, asked := backoff.Backoff{Min: leaseRenewal, Max: longestSpreadPause}, 0, 0
	sessions := 0
	for backoff.Sleep(ctx, pause.Next()) {
		for range mostWaits {
			if missing := sessions - s.total(); asked == 0 || missing <= max(leastMoved, asked/4) || !backoff.Sleep(ctx, leaseRenewal) {
				break
			}
		}
		sessions = s.total()
		excess := s.excess()
		if excess == 0 || 4*(before-excess) >= asked { // with two replicas, half of the agents return
			pause.Reset()
		}
		before, asked = excess, s.round(ctx, excess)
	}
	return nil
}

// total returns the number of sessions of all replicas.
func (s *Spreader) total() int {
	total := len(s.sessions())
	for _, n := range s.replicas.sessionsOfOthers() {
		total += n
	}
	return total
}

// excess returns how many sessions this replica has beyond its share. It is 0 while the difference does not matter.
func (s *Spreader) excess() int {
	own, others := len(s.sessions()), len(s.replicas.sessionsOfOthers())
	share := (s.total() + others) / (others + 1) // rounded up
	if others == 0 || own <= share+max(1, share/10) {
		return 0
	}
	return own - share
}

// round asks agents to connect again, one after the other during one renewal, and returns their number. Each costs a TLS
// handshake and two writes of the Agent's status, of which a replica makes 50 per second.
func (s *Spreader) round(ctx context.Context, excess int) int {
	sessions := s.sessions()
	chosen := chooseSessions(sessions, min(excess, max(leastMoved, min(len(sessions)/6, mostMoved))), time.Now())
	if len(chosen) > 0 {
		s.log.InfoContext(ctx, "Asking agents to connect to another principal replica", "agents", len(chosen), "excess", excess)
	}
	for _, session := range chosen {
		session.Move("this principal replica has more agents than the others: connect again")
		s.moved.Add(1)
		if !backoff.Sleep(ctx, leaseRenewal/time.Duration(len(chosen))) {
			break
		}
	}
	return len(chosen)
}

// chooseSessions returns up to n sessions: those that users do not use, then the oldest.
func chooseSessions(sessions []SpreadSession, n int, now time.Time) []SpreadSession {
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(a SpreadSession) bool { return now.Sub(a.Since) < youngestMoved })
	return inOrder(sessions)[:min(n, len(sessions))]
}

// inOrder sorts sessions by the order in which they move.
func inOrder(sessions []SpreadSession) []SpreadSession {
	slices.SortStableFunc(sessions, func(a, b SpreadSession) int {
		if a.Used != b.Used {
			if a.Used {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano())
	})
	return sessions
}

// Drain moves all agents to the other replicas, until ctx ends or no other replica is alive. It begins when one of them accepts
// agents, asks a bounded number of agents per second, and returns when all of them have arrived. Call it when this replica
// accepts no more agents. It ends Run.
func (s *Spreader) Drain(ctx context.Context) {
	s.drain()
	var underway []SpreadSession
	asked := 0
	for {
		accepting, starting := s.replicas.targets()
		sessions := s.sessions()
		underway = slices.DeleteFunc(underway, func(a SpreadSession) bool { return a.Arrived() })
		if accepting+starting == 0 || len(sessions)+len(underway) == 0 {
			break
		}
		for _, session := range inOrder(sessions)[:min(len(sessions), accepting*drainPerSecond*int(drainInterval)/int(time.Second))] {
			session.Move("this principal replica is shutting down: connect again")
			s.moved.Add(1)
			asked++
			underway = append(underway, session)
		}
		if !backoff.Sleep(ctx, drainInterval) {
			break
		}
	}
	s.log.InfoContext(ctx, "Moved agents to other principal replicas", "asked", asked, "underway", len(underway), "left", len(s.sessions()))
}
