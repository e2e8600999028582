package wire

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func (w *writer) delta(m engine.Delta) {
	if !w.count("items", len(m.Items), MaxItems) {
		return
	}
	w.uint(deltaView, m.View)
	w.uint(deltaRevision, m.Revision)
	for i := range slices.Backward(m.Items) {
		end := w.len()
		w.deltaItem(&m.Items[i])
		w.close(deltaItems, end)
		if w.failedIn("items", i) {
			return
		}
	}
	w.string(deltaScope, "scope", scopeName, m.Scope)
}

func (w *writer) deltaItem(it *engine.DeltaItem) {
	switch {
	case len(it.Content) > MaxContent:
		w.fail(tooLarge("content", len(it.Content), MaxContent))
		return
	case len(it.Extra) > MaxExtra:
		w.fail(tooLarge("extra", len(it.Extra), MaxExtra))
		return
	case it.Gone && len(it.Content) != 0:
		w.fail(badField("content", "is there although the item is gone"))
		return
	}
	w.bool(deltaItemDeleted, it.Deleted)
	w.uint(deltaItemBorn, it.Revision)
	w.bytes(deltaItemExtra, it.Extra)
	w.bytes(deltaItemContent, it.Content)
	w.bool(deltaItemGone, it.Gone)
	w.pair(deltaItemVersion, it.Version.Hi, it.Version.Lo)
	w.key(deltaItemKey, "key", it.Key)
	w.uint(deltaItemSeq, it.Seq)
}

func readDelta(b []byte) (engine.Message, *Error) {
	var m engine.Delta
	r := reader{rest: b}
	if n := r.count(deltaItems, "items", MaxItems); n > 0 {
		m.Items = make([]engine.DeltaItem, 0, n)
	}
	for r.next() {
		switch r.tag {
		case deltaScope:
			m.Scope = r.string("scope", scopeName)
		case deltaItems:
			m.Items = append(m.Items, engine.DeltaItem{})
			last := len(m.Items) - 1
			r.entry("items", last, readDeltaItem(r.data, &m.Items[last]))
		case deltaRevision:
			m.Revision = r.num
		case deltaView:
			m.View = r.num
		}
	}
	r.need("scope", m.Scope)
	return m, r.err
}

func readDeltaItem(b []byte, it *engine.DeltaItem) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case deltaItemSeq:
			it.Seq = r.num
		case deltaItemKey:
			r.nested("key", readKey(r.data, &it.Key))
		case deltaItemVersion:
			it.Version.Hi, it.Version.Lo = r.pair("version")
		case deltaItemGone:
			it.Gone = r.bool()
		case deltaItemContent:
			it.Content = r.bytes("content", MaxContent)
		case deltaItemExtra:
			it.Extra = r.bytes("extra", MaxExtra)
		case deltaItemBorn:
			it.Revision = r.num
		case deltaItemDeleted:
			it.Deleted = r.bool()
		}
	}
	r.need("key.name", it.Key.Name)
	if it.Gone && len(it.Content) != 0 {
		r.fail(badField("content", "is there although the item is gone"))
	}
	return r.err
}

func (w *writer) ack(m engine.Ack) {
	if !w.count("items", len(m.Items), MaxItems) {
		return
	}
	for i := range slices.Backward(m.Items) {
		end := w.len()
		w.ackItem(&m.Items[i])
		w.close(ackItems, end)
		if w.failedIn("items", i) {
			return
		}
	}
	w.string(ackScope, "scope", scopeName, m.Scope)
}

func (w *writer) ackItem(it *engine.AckItem) {
	w.pause(ackItemRetryAfter, "retry_after_millis", it.RetryAfterMillis)
	w.string(ackItemMessage, "message", messageText, sanitizeText(it.Message))
	w.string(ackItemCode, "code", shortToken, string(it.Code))
	w.pair(ackItemVersion, it.Version.Hi, it.Version.Lo)
	w.key(ackItemKey, "key", it.Key)
	w.uint(ackItemSeq, it.Seq)
}

func readAck(b []byte) (engine.Message, *Error) {
	var m engine.Ack
	r := reader{rest: b}
	if n := r.count(ackItems, "items", MaxItems); n > 0 {
		m.Items = make([]engine.AckItem, 0, n)
	}
	for r.next() {
		switch r.tag {
		case ackScope:
			m.Scope = r.string("scope", scopeName)
		case ackItems:
			m.Items = append(m.Items, engine.AckItem{})
			last := len(m.Items) - 1
			r.entry("items", last, readAckItem(r.data, &m.Items[last]))
		}
	}
	r.need("scope", m.Scope)
	return m, r.err
}

func readAckItem(b []byte, it *engine.AckItem) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case ackItemSeq:
			it.Seq = r.num
		case ackItemKey:
			r.nested("key", readKey(r.data, &it.Key))
		case ackItemVersion:
			it.Version.Hi, it.Version.Lo = r.pair("version")
		case ackItemCode:
			it.Code = engine.Code(r.string("code", shortToken))
		case ackItemMessage:
			it.Message = r.string("message", messageText)
		case ackItemRetryAfter:
			it.RetryAfterMillis = r.pause("retry_after_millis")
		}
	}
	r.need("key.name", it.Key.Name)
	return r.err
}
