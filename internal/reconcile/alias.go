package reconcile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file records on replica objects how they are stored where that differs from what was written. It has that
// checked when the CRD of the resource, or the release of either side, has changed.

// droppedFields returns the fields of content that an object lacks, shortened for display.
func droppedFields(s *scope, content, held []byte) []string {
	if s.cfg.Style != engine.Mirror || content == nil || bytes.Equal(content, held) {
		return nil
	}
	return kind.ShortFields(kind.LostFields(content, held))
}

// recordAlias records an alias on an object that we own, so that it survives a restart and users see which fields are
// lost.
func (l *agentSync) recordAlias(e engine.RecordAlias) {
	s := l.scope(e.Scope)
	if s.cfg.Style != engine.Mirror || l.isStandby() { // the annotation is that of the active hub
		return
	}
	ref, err := s.kind.Target(e.Key, &l.env)
	if err != nil {
		return
	}
	alias := kind.Alias{Alias: e.Alias, Lost: e.Lost}
	if !e.Temporary {
		alias.Release, alias.Schema = l.release(), l.reconciler.schemas[ref.Resource]
	}
	l.reconciler.enqueue(ref, job{name: l.name + "/" + e.Scope + "/alias", why: "record alias", agent: l.name,
		decide: ifChanged(func(local *kind.Object) *kind.Object {
			if !s.kind.Matches(local) || local.IsDeleting() {
				return local
			}
			ownership := kind.ReadOwnership(local, &l.env)
			held, ok := s.kind.ReadReplica(local, &l.env)
			if !ownership.Owned || !ok || ownership.Alias.Equal(alias) || l.versionOf(s, local, held) != alias.Stored {
				return local
			}
			return kind.WithAlias(local, alias)
		})})
}

// release identifies the releases of both sides, the projection that they use, and what narrows received objects: the
// spoke's policy, and what the hub allows an autonomous agent.
func (l *agentSync) release() string {
	b := fmt.Appendf(nil, "%q %q %d%s", l.reconciler.cfg.Version, l.peerVersion, l.env.Projection, l.reconciler.policy.ID)
	if allow := l.env.Agent.Allow; allow != (kind.Allow{}) {
		b = fmt.Appendf(b, "%+v", allow)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// isOutdated reports whether an alias was recorded by other releases or under another schema.
func (l *agentSync) isOutdated(s *scope, alias kind.Alias) bool {
	schema, known := l.reconciler.schemas[s.kind.Resource()]
	return alias.Release != l.release() || known && alias.Schema != schema
}

// recheck has aliases checked that were recorded by other releases or under another schema.
func (l *agentSync) recheck() {
	for i := range l.scopes {
		s := &l.scopes[i]
		if s.cfg.Role != engine.Replica || s.cfg.Style != engine.Mirror {
			continue
		}
		for _, o := range l.objects(s.kind.Resource()) {
			if o.Annotation(kind.AliasAnnotation) == "" || !s.kind.Matches(o) {
				continue
			}
			held, ok := s.kind.ReadReplica(o, &l.env)
			if ok && l.isOutdated(s, held.Ownership.Alias) {
				l.step(engine.Recheck{Scope: s.cfg.Name, Key: held.Key})
			}
		}
	}
}

// schema records the schema version of a resource. If it changes, every alias is checked.
func (n *Reconciler) schema(in Schema) {
	was, known := n.schemas[in.Resource]
	n.schemas[in.Resource] = in.Version
	for _, l := range n.sortedSyncs() {
		switch {
		case !l.known || known && was == in.Version:
		case !known && !l.met: // opened checks them: the release of the other side is not known yet
		case !known:
			l.recheck()
		default:
			for _, s := range l.scopes {
				if s.cfg.Role == engine.Replica && s.kind.Resource() == in.Resource {
					l.step(engine.Recheck{Scope: s.cfg.Name})
					if s.cfg.Style == engine.Mirror {
						l.step(engine.Reconsider{Scope: s.cfg.Name}) // what was refused because of its fields
					}
				}
			}
		}
	}
}
