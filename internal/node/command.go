package node

import (
	"fmt"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// This file is about commands: what carries them out, and what they are called.

// execute carries out commands on the spoke's Application, as far as it can at
// the moment.
func (l *link) execute(e engine.Apply, local *kind.Object) decision {
	if local == nil {
		return decision{fail: &Failure{Code: engine.Busy, Message: "the Application is not on the spoke yet", RetryAfter: engine.Second}}
	}
	x, err := kind.Execute(local, e.Content, &l.world)
	switch {
	case err != nil:
		return decision{fail: failure(err)}
	case x.Object != nil:
		return decision{verb: Update, object: x.Object, again: x.Waits || x.Refused != nil}
	case x.Refused != nil:
		return decision{fail: failure(x.Refused)}
	case x.Waits:
		return decision{fail: &Failure{Code: engine.Busy, Message: x.Reason, RetryAfter: 2 * engine.Second}}
	}
	return decision{}
}

// begun remembers a refresh that the spoke's Application now asks for. The
// Application remembers it too, but an ApplicationSet's controller may take
// that from it.
func (l *link) begun(e engine.Apply) {
	if nonce := raw.Text(e.Content, "nonce"); nonce != "" {
		note(&l.refreshed, e.Key, nonce)
	}
}

// publish projects an object for the other side. A status also says which
// refresh it comes after.
func (l *link) publish(s *scope, o *kind.Object) (kind.Item, bool) {
	if l.world.Agent.Excludes(s.cfg.Name) {
		return kind.Item{}, false
	}
	item, ok := s.kind.Publish(o, &l.world)
	if !ok || s.cfg.Style != engine.Attached {
		return item, ok
	}
	if nonce := l.refreshed[item.Key]; nonce != "" {
		item.Extra = kind.WithRefreshed(o, item.Extra, nonce)
	}
	return item, true
}

// commandID names a command by when it was first seen and what it is.
func commandID(now engine.Time, o *kind.Object) string {
	v := engine.VersionOf(fmt.Appendf(nil, "%s/%s/%s", o.UID(), o.ResourceVersion(), o.Get("operation")))
	return strconv.FormatInt(int64(now), 36) + "-" + v.String()[:16]
}

func nonce(now engine.Time, n uint64) string {
	return strconv.FormatInt(int64(now), 36) + "." + strconv.FormatUint(n, 36)
}
