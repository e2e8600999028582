package wire

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func (w *writer) finished(m engine.Finished) {
	w.pair(finishedVersion, m.Version.Hi, m.Version.Lo)
	w.key(finishedKey, "key", m.Key)
	w.string(finishedScope, "scope", scopeName, m.Scope)
}

func readFinished(b []byte) (engine.Message, *Error) {
	var m engine.Finished
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case finishedScope:
			m.Scope = r.string("scope", scopeName)
		case finishedKey:
			r.nested("key", readKey(r.data, &m.Key))
		case finishedVersion:
			m.Version.Hi, m.Version.Lo = r.pair("version")
		}
	}
	r.need("scope", m.Scope)
	r.need("key.name", m.Key.Name)
	return m, r.err
}

// Held and Confirm may be about a store instead of a scope: no scope is named.

func (w *writer) held(m engine.Held) {
	if !w.count("sample", len(m.Sample), MaxSample) {
		return
	}
	w.string(heldCause, "cause", shortToken, string(m.Cause))
	for i := range slices.Backward(m.Sample) {
		w.key(heldSample, at("sample", i), m.Sample[i])
	}
	w.string(heldReason, "reason", messageText, sanitizeText(m.Reason))
	w.uint(heldOf, m.Of)
	w.uint(heldCount, m.Count)
	w.string(heldID, "id", shortToken, m.ID)
	w.string(heldScope, "scope", shortToken, m.Scope)
}

func readHeld(b []byte) (engine.Message, *Error) {
	var m engine.Held
	r := reader{rest: b}
	if n := r.count(heldSample, "sample", MaxSample); n > 0 {
		m.Sample = make([]engine.Key, 0, n)
	}
	for r.next() {
		switch r.tag {
		case heldScope:
			m.Scope = r.string("scope", shortToken)
		case heldID:
			m.ID = r.string("id", shortToken)
		case heldCount:
			m.Count = r.num
		case heldOf:
			m.Of = r.num
		case heldReason:
			m.Reason = r.string("reason", messageText)
		case heldSample:
			var k engine.Key
			r.entry("sample", len(m.Sample), readKey(r.data, &k))
			r.need("sample.name", k.Name)
			m.Sample = append(m.Sample, k)
		case heldCause:
			m.Cause = engine.Cause(r.string("cause", shortToken))
		}
	}
	return m, r.err
}

func readWriteOutage(b []byte) (engine.Message, *Error) {
	var m engine.WriteOutage
	r := reader{rest: b}
	for r.next() {
		if r.tag == outageReason {
			m.Reason = r.string("reason", messageText)
		}
	}
	return m, r.err
}

func (w *writer) confirm(m engine.Confirm) {
	w.string(confirmID, "id", shortToken, m.ID)
	w.string(confirmScope, "scope", shortToken, m.Scope)
}

func readConfirm(b []byte) (engine.Message, *Error) {
	var m engine.Confirm
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case confirmScope:
			m.Scope = r.string("scope", shortToken)
		case confirmID:
			m.ID = r.string("id", shortToken)
		}
	}
	return m, r.err
}
