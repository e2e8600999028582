package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport/route"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// endOf returns what the end of an attempt means for the addresses. Only the agent itself decides that it does not follow a
// hub: what the hub sends does not count.
func endOf(err error) route.End {
	end := route.End{RetryAfter: retryAfter(err)}
	if bye, ok := errors.AsType[*ByeError](err); ok && bye.Local {
		end.WrongHub = bye.Code == engine.HubSuperseded || bye.Code == engine.WrongHub
		end.Return = bye.Code == engine.Reconnect
	}
	return end
}

// returnToFirst ends a session with another hub than the first when the first accepts sessions again.
func (d *Dialer) returnToFirst(c *Conn) {
	first := d.cfg.Connectors[0]
	for backoff.Sleep(c.ctx, d.route.NextReturn()) {
		session, err := first.Connect(c.ctx, &d.counters, nil)
		if err != nil {
			continue
		}
		session.Close()
		c.Close(engine.Reconnect, fmt.Sprintf("%s accepts sessions again", first.Address()))
		return
	}
}

// retryAfter returns the pause that the hub requested.
func retryAfter(err error) time.Duration {
	if bye, ok := errors.AsType[*ByeError](err); ok {
		return bye.RetryAfter
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.RetryAfter
	}
	return 0
}
