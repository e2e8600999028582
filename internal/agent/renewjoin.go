package agent

import (
	"context"
	"errors"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/link"
)

// certify sees to it that the agent has a certificate, where that is its
// business, and returns what keeps it up.
func (a *agent) certify(ctx context.Context) func(context.Context, *link.Office) error {
	if a.cfg.Certificates == nil {
		return nil
	}
	k := a.newKeeper()
	if !k.join(ctx) || a.cfg.TLS == nil {
		return k.office
	}
	// What was written is on its way back, by the watch; to dial before it is there
	// would cost a pause.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := a.cfg.TLS(); err == nil {
			break
		}
		k.wait(ctx, 10*time.Millisecond)
	}
	return k.office
}

// join exchanges a token for a certificate, if there is one and not the other. It
// tries until that works, or is no longer needed: somebody may replace the token,
// or bring a certificate. It tells whether it did.
func (k *keeper) join(ctx context.Context) bool {
	a := k.agent
	j := link.ClusterJoin{Secrets: k.secrets, Token: k.names.Token, Client: k.names.Client, Authority: k.names.Authority,
		Proxy: a.cfg.Proxy, Explain: a.cfg.Explain, Log: a.log}
	began := time.Now()
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, 30*time.Second) {
		needed, err := j.Needed(ctx)
		if err == nil && !needed {
			return false
		}
		var answer link.Joined
		if err == nil {
			answer, err = j.Do(ctx)
		}
		if err == nil {
			a.log.InfoContext(ctx, "joined the hub", "mode", answer.Mode, "took", time.Since(began).Round(time.Millisecond).String())
			if answer.Mode != string(a.cfg.Mode) {
				a.log.WarnContext(ctx, "the hub has registered this agent in another mode: set --agent-mode to it", "hub", answer.Mode, "here", a.cfg.Mode)
			}
			return true
		}
		k.waitToJoin(ctx, err, pause)
	}
	return false
}

// waitToJoin says why it did not work, once, and waits.
func (k *keeper) waitToJoin(ctx context.Context, err error, pause time.Duration) {
	if ctx.Err() != nil {
		return
	}
	if told, ok := errors.AsType[*link.EnrollError](err); ok && told.Temporary {
		pause = max(told.RetryAfter, time.Second)
	}
	k.agent.why.Store(err.Error())
	if err.Error() != k.said {
		k.said = err.Error()
		k.agent.log.WarnContext(ctx, "can not join the hub; trying again", "error", err)
	}
	k.wait(ctx, pause)
}

func (k *keeper) wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
