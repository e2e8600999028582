package engine

import (
	"slices"
	"strings"
)

// store stands in for an API server and the controllers that work on it.
type store struct {
	side    *side
	id      Store
	objects map[string]map[Key]*object
	waiting []Effect // writes that take their time
	slow    bool
	alarmed map[string]bool // scopes whose view is not complete

	refuse    map[string]refusal // by "scope key": what the API server says
	normalise map[string]string  // by scope: what a webhook appends
	prune     map[string]string  // by scope: a field that is dropped
	fight     map[string]string  // by "scope key": what a controller makes of it
	ran       []string           // commands that were carried out
	never     bool               // adopt nothing
	lag       uint64             // the process sees the store only up to here; 0: all of it
	story     *history           // of every item, if it is checked
}

type object struct {
	content string
	extra   string
	needs   Key
	owned   bool
	alias   Alias
	lossy   bool
	foreign bool // was never ours

	revision uint64 // at which it last changed
	born     uint64 // as recorded on it: that of the owner's
	bornIn   uint64 // as recorded on it: the generation of the owner
}

type refusal struct {
	code    Code
	message string
}

func newStore(s *side, uid string) *store {
	return &store{side: s, id: Store{UID: uid, Revision: 100}, objects: map[string]map[Key]*object{},
		refuse: map[string]refusal{}, normalise: map[string]string{}, prune: map[string]string{}, fight: map[string]string{}, alarmed: map[string]bool{}}
}

func (st *store) of(scope string) map[Key]*object {
	if st.objects[scope] == nil {
		st.objects[scope] = map[Key]*object{}
	}
	return st.objects[scope]
}

// Content implements Source.
func (st *store) Content(scope string, key Key) (content, extra []byte, ok bool) {
	o := st.of(scope)[key]
	if o == nil {
		return nil, nil, false
	}
	return []byte(o.content), []byte(o.extra), true
}

// Revision implements Source.
func (st *store) Revision(string) uint64 { return st.seen() }

// SourceRevision implements Source.
func (st *store) SourceRevision(scope string, key Key) uint64 {
	if o := st.of(scope)[key]; o != nil {
		return o.revision
	}
	return 0
}

// View implements Source.
func (st *store) View(string) (least, most uint64) { return st.seen(), st.seen() }

func (st *store) seen() uint64 {
	if st.lag != 0 {
		return st.lag
	}
	return st.id.Revision
}

func (st *store) isOwner(scope string) bool { return st.side.peer.owners[scope] != nil }

// allInputs is what a process reads when it starts.
func (st *store) allInputs() []Input {
	var in []Input
	for _, cfg := range st.side.cfg.Scopes {
		for _, k := range sortedKeys(st.of(cfg.Name)) {
			in = append(in, st.inputFor(cfg.Name, k))
		}
		in = append(in, View{Scope: cfg.Name, Complete: !st.alarmed[cfg.Name]})
	}
	return in
}

// inputFor is the input that describes an object as it is.
func (st *store) inputFor(scope string, key Key) Input {
	o := st.of(scope)[key]
	switch {
	case st.isOwner(scope) && o == nil:
		return Withdraw{Scope: scope, Key: key, Seen: true}
	case st.isOwner(scope):
		return Publish{Scope: scope, Key: key, Version: VersionOf([]byte(o.content)), DependsOn: o.needs,
			SendExtra: o.extra != "", Urgent: strings.HasPrefix(o.extra, "!")}
	case o == nil:
		return ObjectGone{Scope: scope, Key: key}
	}
	return Observe{Scope: scope, Key: key, Stored: VersionOf([]byte(o.content)), Size: len(o.content), Owned: o.owned, Alias: o.alias, Lossy: o.lossy, SourceRevision: o.born, SourceGeneration: o.bornIn}
}

// put stores an object by the hand of a user, as owner or behind our back.
func (st *store) put(scope string, key Key, change func(*object)) {
	o := st.of(scope)[key]
	if o == nil {
		o = &object{foreign: !st.isOwner(scope)}
		st.of(scope)[key] = o
	}
	st.id.Revision++
	o.revision = st.seen()
	change(o)
	st.story.owner(st, scope, key, o.content)
	st.side.w.names.content(key, o.content)
	st.side.do(st.inputFor(scope, key))
	st.attach(scope, key)
}

func (st *store) delete(scope string, key Key) {
	if st.of(scope)[key] == nil {
		return
	}
	delete(st.of(scope), key)
	st.id.Revision++
	st.story.owner(st, scope, key, "")
	st.side.do(st.inputFor(scope, key))
	st.attach(scope, key)
}

// attach keeps the status of an Application where the Application is.
func (st *store) attach(scope string, key Key) {
	if scope != "application" || st.isOwner("status") {
		return
	}
	app, status := st.of("application")[key], st.of("status")[key]
	switch {
	case app != nil && status == nil:
		st.of("status")[key] = &object{} // nothing in it yet, so nothing that counts
	case app == nil && status != nil:
		delete(st.of("status"), key)
	default:
		return
	}
	st.side.do(st.inputFor("status", key))
}

// queueWrite carries out a write, now or when the API server finds the time.
func (st *store) queueWrite(e Effect) {
	if rm, ok := e.(Remove); ok && st.of(rm.Scope)[rm.Key] != nil && !st.of(rm.Scope)[rm.Key].owned {
		st.side.w.t.Errorf("%s: an object without our ownership annotation is to be removed: %s %s", st.side.name, rm.Scope, rm.Key)
	}
	if st.slow {
		st.waiting = append(st.waiting, e)
		return
	}
	st.write(e)
}

// drain carries out what has waited.
func (st *store) drain() {
	waiting := st.waiting
	st.waiting = nil
	for _, e := range waiting {
		st.write(e)
		st.side.w.work()
	}
}

func (st *store) write(e Effect) {
	var scope string
	var key Key
	var result Applied
	switch e := e.(type) {
	case Apply:
		scope, key = e.Scope, e.Key
		result = st.apply(e)
	case Remove:
		scope, key = e.Scope, e.Key
		result = st.remove(e)
	}
	result.Scope, result.Key = scope, key
	switch e := e.(type) {
	case Apply:
		result.Ticket = e.Ticket
		st.trace("apply", scope, key, string(e.Content), result.Code)
	case Remove:
		result.Ticket = e.Ticket
		st.trace("remove", scope, key, "", result.Code)
	}
	st.side.todo = append(st.side.todo, result)
	if result.Code == OK && !isPending(st.side.cfg, scope) {
		st.side.todo = append(st.side.todo, st.inputFor(scope, key))
		if back, ok := st.fight[scope+" "+key.String()]; ok && st.of(scope)[key] != nil && result.Written {
			st.of(scope)[key].content = back
			st.side.w.names.content(key, back)
			st.side.todo = append(st.side.todo, st.inputFor(scope, key))
		}
	}
}

func (st *store) apply(e Apply) Applied {
	name := e.Scope + " " + e.Key.String()
	if no, ok := st.refuse[name]; ok {
		return Applied{Code: no.code, Message: no.message}
	}
	if isPending(st.side.cfg, e.Scope) {
		st.ran = append(st.ran, e.Key.String()+"="+string(e.Content))
		return Applied{Written: true}
	}
	o := st.of(e.Scope)[e.Key]
	if o == nil && isAttached(st.side.cfg, e.Scope) {
		return Applied{Code: NoObject, Message: "gone"}
	}
	if strings.HasPrefix(string(e.Content), "deleting") && o == nil {
		return Applied{Gone: true}
	}
	if strings.HasPrefix(string(e.Content), "leave") {
		if o == nil || !o.owned {
			return Applied{Code: NotAllowed, Message: "there is nothing to leave as it is"}
		}
		return Applied{Stored: VersionOf([]byte(o.content)), SourceRevision: o.born, SourceGeneration: o.bornIn, LeftUnchanged: true}
	}
	if st.never && o != nil && o.foreign && !o.owned && !isAttached(st.side.cfg, e.Scope) {
		return Applied{Code: NotAdopted, Message: "exists and is not ours"}
	}
	st.story.replica(st, e.Scope, e.Key, string(e.Content))
	content := string(e.Content) + st.normalise[e.Scope]
	var lost []string
	if field := st.prune[e.Scope]; field != "" && strings.Contains(content, field) {
		content, lost = strings.ReplaceAll(content, field, ""), []string{field}
	}
	if o == nil {
		o = &object{}
		st.of(e.Scope)[e.Key] = o
		o.owned, o.content, o.extra, o.born, o.bornIn = true, content, string(e.Extra), e.SourceRevision, e.SourceGeneration
		st.id.Revision++
		st.side.w.names.content(e.Key, content)
		return Applied{Stored: VersionOf([]byte(content)), Size: len(content), Written: true, SourceRevision: o.born, SourceGeneration: o.bornIn, Lost: lost}
	}
	replaced := VersionOf([]byte(o.content))
	written := !o.owned || o.content != content || o.extra != string(e.Extra) || lost != nil
	contested := []string(nil)
	if o.content != content {
		contested = []string{o.content}
	}
	o.owned, o.content, o.extra = true, content, string(e.Extra)
	if written {
		o.born, o.bornIn = e.SourceRevision, e.SourceGeneration
	}
	st.side.w.names.content(e.Key, content)
	return Applied{Stored: VersionOf([]byte(content)), Size: len(content), Replaced: replaced, Written: written, SourceRevision: o.born, SourceGeneration: o.bornIn, Lost: lost, Contested: contested}
}

func (st *store) remove(e Remove) Applied {
	o := st.of(e.Scope)[e.Key]
	if no, ok := st.refuse[e.Scope+" "+e.Key.String()]; ok {
		return Applied{Code: no.code, Message: no.message}
	}
	if o != nil && !o.owned {
		return Applied{} // another writer took the name: a precondition fails
	}
	if o != nil {
		st.story.replica(st, e.Scope, e.Key, "")
	}
	delete(st.of(e.Scope), e.Key)
	st.id.Revision++
	return Applied{Written: o != nil}
}

// annotate records an alias on an object of ours.
func (st *store) annotate(e RecordAlias) {
	st.trace("alias", e.Scope, e.Key, strings.Join(e.Lost, " "), OK)
	o := st.of(e.Scope)[e.Key]
	if o != nil && o.owned && (o.alias != e.Alias || o.lossy != (len(e.Lost) > 0)) {
		o.alias, o.lossy = e.Alias, len(e.Lost) > 0
		st.side.todo = append(st.side.todo, st.inputFor(e.Scope, e.Key))
	}
}

func (st *store) trace(verb, scope string, key Key, content string, code Code) {
	if st.side.w.trace == nil {
		return
	}
	line := verb + " " + scope + " " + key.String()
	if content != "" {
		line += "=" + short(content)
	}
	if code != OK {
		line += ": " + string(code)
	}
	st.side.w.trace("%-5s ! %s", st.side.name, line)
}

// contents is what counts of a scope: at the replica, what is ours.
func (st *store) contents(scope string) map[string]string {
	out := map[string]string{}
	for k, o := range st.of(scope) {
		if st.isOwner(scope) || o.owned {
			out[k.String()] = o.content
		}
	}
	return out
}

func isPending(cfg Config, scope string) bool {
	return slices.ContainsFunc(cfg.Scopes, func(s ScopeConfig) bool { return s.Name == scope && s.Style == OneShot })
}

func isAttached(cfg Config, scope string) bool {
	return slices.ContainsFunc(cfg.Scopes, func(s ScopeConfig) bool { return s.Name == scope && s.Style == Attached })
}

func sortedKeys(m map[Key]*object) []Key {
	keys := make([]Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
