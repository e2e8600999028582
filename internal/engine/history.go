package engine

import (
	"strconv"
	"strings"
)

// This file recognizes a store that was restored from a snapshot, also if its revision has since grown past the one that
// the other side knows.
//
// An owner records a history mark in its own store, and then sends it to the other side. A restore to a state before that
// write loses the mark, whatever is written later. A side that knows a later mark than the owner has does not trust the
// owner's store, as after a regress of its revision.
//
// An owner that lacks a mark that the other side knows records no new ones until a user has accepted its store. Otherwise it
// would reach the lost number again. A side that knows less than the owner has lost its own record, or has not received the
// last mark: it follows.
//
// What the other side received after the last mark that it knows can be lost without a trace.

// HistoryMark is a number in an object of a store that grows with the history of the store.
type HistoryMark struct {
	Record string // identifies the object that has the mark; marks of two records cannot be compared. Empty: none are recorded.
	Number uint64
}

// FormatHistoryMark returns a mark as RECORD/NUMBER, or "" if none are recorded.
func FormatHistoryMark(m HistoryMark) string {
	if m.Record == "" {
		return ""
	}
	return m.Record + "/" + strconv.FormatUint(m.Number, 10)
}

// ParseHistoryMark returns the mark that FormatHistoryMark has written, or the zero value.
func ParseHistoryMark(text string) HistoryMark {
	record, digits, _ := strings.Cut(text, "/")
	number, err := strconv.ParseUint(digits, 10, 64)
	if record == "" || err != nil {
		return HistoryMark{}
	}
	return HistoryMark{Record: record, Number: number}
}

// lostIn reports whether a store with the mark now lacks history that had the mark m.
func (m HistoryMark) lostIn(now HistoryMark) bool {
	return m.Record != "" && m.Record == now.Record && now.Number < m.Number
}

// Newer returns the later of two marks, or the other one if it is of another object.
func (m HistoryMark) Newer(other HistoryMark) HistoryMark {
	if other.Record == "" || other.Record == m.Record && other.Number < m.Number {
		return m
	}
	return other
}

// compareHistory compares what the other side knows of this side's store with the store.
func (p *Peer) compareHistory(known Store) {
	p.historyLost = known.UID == p.own.UID && known.Mark.lostIn(p.own.Mark)
	p.markedRevision = 0
}

// marked handles a mark that is stored.
func (p *Peer) marked(in Marked) {
	if in.Mark.Record == p.own.Mark.Record && in.Mark.Number > p.own.Mark.Number {
		p.own.Mark = in.Mark
		p.markedRevision = max(p.markedRevision, in.Revision)
	}
}

// unmarked returns the newest revision of this side's objects if no mark covers it. It returns 0 if one does, or if no mark
// may be recorded.
func (p *Peer) unmarked() uint64 {
	if p.phase == closed || p.historyLost || p.own.Mark.Record == "" {
		return 0
	}
	newest := uint64(0)
	for _, o := range p.orderedOwners {
		if o.cfg.Style == Mirror && !o.unshared && len(o.items) > 0 {
			newest = max(newest, p.source.Revision(o.cfg.Name))
		}
	}
	if newest <= p.markedRevision {
		return 0
	}
	return newest
}

// sawMark records the latest mark of the other side's store.
func (p *Peer) sawMark(number uint64) {
	if p.current.Mark.Record == "" {
		return
	}
	p.current.Mark.Number = max(p.current.Mark.Number, number)
	if !p.storeUntrusted {
		p.other.Mark = p.current.Mark
	}
}
