package wire

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// What several messages have in common. Readers fill in what they are given:
// protobuf merges a nested message that comes twice.

func (w *writer) epoch(t tag, e engine.Epoch) {
	end := w.len()
	w.uint(epochAttempt, e.Attempt)
	w.uint(epochIncarnation, e.Incarnation)
	w.closeFilled(t, end)
}

func readEpoch(b []byte, e *engine.Epoch) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case epochIncarnation:
			e.Incarnation = r.num
		case epochAttempt:
			e.Attempt = r.num
		}
	}
	return r.err
}

func (w *writer) versionRange(t tag, field string, s engine.Range) {
	end := w.len()
	w.version(rangeMax, field+".max", s.Max)
	w.version(rangeMin, field+".min", s.Min)
	w.closeFilled(t, end)
}

func readVersionRange(b []byte, s *engine.Range) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case rangeMin:
			s.Min = r.version("min")
		case rangeMax:
			s.Max = r.version("max")
		}
	}
	return r.err
}

func (w *writer) store(t tag, s engine.Store) {
	end := w.len()
	w.uint(storeRevision, s.Revision)
	w.string(storeUID, "store.uid", uid, s.UID)
	w.closeFilled(t, end)
}

func readStore(b []byte, s *engine.Store) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case storeUID:
			s.UID = r.string("uid", uid)
		case storeRevision:
			s.Revision = r.num
		}
	}
	return r.err
}

func (w *writer) seen(t tag, list []engine.Seen) {
	if !w.count("seen", len(list), MaxScopes) {
		return
	}
	for i := range slices.Backward(list) {
		end := w.len()
		w.uint(seenRevision, list[i].Revision)
		w.string(seenScope, "seen.scope", scopeName, list[i].Scope)
		w.close(t, end)
	}
}

// appendSeen reads the current field into a list that will have that size.
func (r *reader) appendSeen(list []engine.Seen, size int) []engine.Seen {
	if list == nil {
		list = make([]engine.Seen, 0, size)
	}
	var s engine.Seen
	in := reader{rest: r.data}
	for in.next() {
		switch in.tag {
		case seenScope:
			s.Scope = in.string("scope", scopeName)
		case seenRevision:
			s.Revision = in.num
		}
	}
	in.need("scope", s.Scope)
	r.entry("seen", len(list), in.err)
	return append(list, s)
}

func (w *writer) capabilities(t tag, list []string) {
	if !w.count("capabilities", len(list), MaxCapabilities) {
		return
	}
	for i := range slices.Backward(list) {
		w.string(t, "capabilities", capability, list[i])
	}
}

// appendCapability reads the current field into a list that will have that size.
func (r *reader) appendCapability(list []string, size int) []string {
	if list == nil {
		list = make([]string, 0, size)
	}
	return append(list, r.string("capabilities", capability))
}

func (w *writer) key(t tag, field string, k engine.Key) {
	if w.err != nil {
		return
	}
	end := w.len()
	w.string(keyName, "name", objectName, k.Name)
	w.string(keyNamespace, "namespace", namespaceName, k.Namespace)
	w.close(t, end)
	if w.err != nil {
		w.err = w.err.in(field)
	}
}

func readKey(b []byte, k *engine.Key) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case keyNamespace:
			k.Namespace = r.string("namespace", namespaceName)
		case keyName:
			k.Name = r.string("name", objectName)
		}
	}
	return r.err
}
