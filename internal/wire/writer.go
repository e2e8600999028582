package wire

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// writer writes protobuf from the end to the front. A block's length precedes
// the block, and is known once the block is written: so nothing is computed
// beforehand, and nothing is moved afterwards. Fields are therefore written in
// descending order, lists from their last entry, and come out ascending.
//
// Fields that have their zero value are left out. The first error stays.
type writer struct {
	buf     []byte
	at      int // what is written begins here
	scratch [62]byte
	err     *Error
}

func newWriter(size int) *writer { return &writer{buf: make([]byte, size), at: size} }

func (w *writer) len() int { return len(w.buf) - w.at }

// take makes room for n bytes before what is written, and returns it.
func (w *writer) take(n int) []byte {
	if n > w.at {
		grown := make([]byte, 2*len(w.buf)+n)
		at := len(grown) - w.len()
		copy(grown[at:], w.buf[w.at:])
		w.buf, w.at = grown, at
	}
	w.at -= n
	return w.buf[w.at : w.at+n]
}

func (w *writer) number(v uint64) {
	b := w.take((bits.Len64(v|1) + 6) / 7)
	for i := range b[:len(b)-1] {
		b[i] = byte(v) | 0x80
		v >>= 7
	}
	b[len(b)-1] = byte(v)
}

func (w *writer) uint(t tag, v uint64) {
	if v != 0 {
		w.number(v)
		w.number(uint64(t))
	}
}

func (w *writer) bool(t tag, v bool) {
	if v {
		w.uint(t, 1)
	}
}

// version writes a version number of protocol or projection.
func (w *writer) version(t tag, field string, v int) {
	if v < 0 || v > maxNumber {
		w.fail(badField(field, "is %d, outside 0 to %d", v, maxNumber))
		return
	}
	w.uint(t, uint64(v))
}

// pause writes how long to wait.
func (w *writer) pause(t tag, field string, millis int64) {
	if millis < 0 {
		w.fail(badField(field, "is negative"))
		return
	}
	w.uint(t, uint64(min(millis, MaxRetryMillis)))
}

// string writes a string that has to obey a rule.
func (w *writer) string(t tag, field string, r rule, s string) {
	if reason := r.violation(s); reason != "" {
		w.fail(badField(field, "%s", reason))
		return
	}
	if s != "" {
		copy(w.take(len(s)), s)
		w.close(t, w.len()-len(s))
	}
}

// entry writes bytes even if there are none, as an entry of a list has to be.
func (w *writer) entry(t tag, b []byte) {
	copy(w.take(len(b)), b)
	w.close(t, w.len()-len(b))
}

func (w *writer) bytes(t tag, b []byte) {
	if len(b) != 0 {
		w.entry(t, b)
	}
}

// pair writes a 128-bit number; zero is left out.
func (w *writer) pair(t tag, hi, lo uint64) { //nolint:unparam // by chance it is field 3 of all messages so far
	if hi|lo != 0 {
		w.rawPair(hi, lo)
		w.close(t, w.len()-16)
	}
}

func (w *writer) rawPair(hi, lo uint64) {
	b := w.take(16)
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
}

// close makes a block of what was written since the length was end.
func (w *writer) close(t tag, end int) {
	w.number(uint64(w.len() - end))
	w.number(uint64(t))
}

// closeFilled is close for a block that is left out when it is empty.
func (w *writer) closeFilled(t tag, end int) {
	if w.len() > end {
		w.close(t, end)
	}
}

func (w *writer) fail(err *Error) {
	if w.err == nil {
		w.err = err
	}
}

// failedIn reports whether an entry of a list could not be written, and names it.
// Whoever writes the list stops there, so an error is named once.
func (w *writer) failedIn(list string, i int) bool {
	if w.err == nil {
		return false
	}
	w.err = w.err.in(at(list, i))
	return true
}

// count refuses lists that are too long; false: do not write it.
func (w *writer) count(field string, n, limit int) bool {
	if n > limit {
		w.fail(tooMany(field, limit))
		return false
	}
	return true
}

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
