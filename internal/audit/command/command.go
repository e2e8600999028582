// Package command writes the audit lines of commands and refusals, from the messages of sessions. Both sides see the same
// messages: the hub sends items and receives their acknowledgements, the agent receives items and sends them.
//
// On the hub, acknowledgements are input of a peer. Only those of items that were sent have a line: the Auditor knows the
// commands without an answer, and the engine reports refused items (Rejected). State is kept and bounded by agent.
package command

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Auditor writes the lines of one side. If nil, it writes nothing. It is safe for concurrent use.
type Auditor struct {
	log  *audit.Log
	side audit.Side

	confirmations logonce.Last[string] // last ID by agent

	mu     sync.Mutex
	agents map[string]*agentState // with commands; a spoke has one without a name
}

// agentState is what is known of one agent.
type agentState struct {
	refusals logonce.Last[object]  // last refusal
	results  logonce.Last[command] // last request ID and result

	waiting map[item][]sent // commands without an answer, oldest first; guarded by Auditor.mu
	count   int             // guarded by Auditor.mu
}

// object is a key of a scope.
type object struct {
	scope string
	key   engine.Key
}

// command is an action on an object.
type command struct {
	object audit.Object
	action string
}

// item is an object in a session.
type item struct {
	session uint64
	object
}

// sent is an item that carries commands.
type sent struct {
	seq     uint64
	records []audit.Record
	quiet   bool // a line is written only if the agent does not accept it
}

// maxWaiting bounds the commands of one agent without an answer. If there are more, their lines are written at once,
// without result.
const maxWaiting = 1024

// New returns the Auditor of one side, or nil if there is no audit log.
func New(log *audit.Log, side audit.Side) *Auditor {
	if log == nil {
		return nil
	}
	return &Auditor{log: log, side: side, agents: map[string]*agentState{}}
}

// state returns the state of an agent, which must be one that this side sends items to.
func (a *Auditor) state(agent string) *agentState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.agents[agent]
	if s == nil {
		s = &agentState{waiting: map[item][]sent{}}
		a.agents[agent] = s
	}
	return s
}

// known returns the state of an agent, or nil if nothing is known of it.
func (a *Auditor) known(agent string) *agentState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.agents[agent]
}

// Forget drops the state of an agent that is no longer registered.
func (a *Auditor) Forget(agent string) {
	if a == nil {
		return
	}
	a.confirmations.Reset(agent)
	a.end(agent, func(uint64) bool { return true }, "the agent was unregistered before the result was known")
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.agents, agent)
}

// Items records the items that the hub has sent to an agent in a session. On a spoke, agent is empty.
func (a *Auditor) Items(agent string, session uint64, d engine.Delta) {
	if a == nil || d.Scope != kind.CommandScope && d.Scope != kind.ApplicationScope {
		return
	}
	for _, in := range d.Items {
		records := a.recordsOf(agent, d.Scope, in)
		if len(records) > 0 {
			// Deleted writes the line of a deletion that a spoke has executed.
			a.wait(a.state(agent), item{session, object{d.Scope, in.Key}}, sent{in.Seq, records, a.side == audit.Spoke && d.Scope == kind.ApplicationScope})
		}
	}
}

func (a *Auditor) wait(of *agentState, key item, s sent) {
	a.mu.Lock()
	full := of.count >= maxWaiting
	if !full {
		of.waiting[key] = append(of.waiting[key], s)
		of.count++
	}
	a.mu.Unlock()
	if full && !s.quiet {
		a.write(of, s.records, audit.Unknown, "", "too many commands wait for an answer")
	}
}

// Answers records the acknowledgements of items by the agent. On the hub, those of items that carry no command that
// waits have no line: a peer can send any number of them.
func (a *Auditor) Answers(agent string, session uint64, ack engine.Ack) {
	if a == nil {
		return
	}
	of := a.known(agent)
	switch {
	case of == nil && a.side == audit.Hub:
		return
	case of == nil:
		of = a.state(agent)
	}
	for _, answer := range ack.Items {
		key := object{ack.Scope, answer.Key}
		records, replaced := a.answered(of, item{session, key}, answer)
		a.write(of, replaced, audit.Unknown, "", "replaced by a later command")
		if records == nil && a.side == audit.Hub {
			continue
		}
		switch result := resultOf(answer.Code); {
		case result == "": // it waits, and is sent again
		case result == audit.OK:
			of.refusals.Reset(key)
			a.write(of, records, result, "", "")
		case of.refusals.Changed(key, refusal(answer.Code, answer.Message)), records != nil && !answer.Code.Retryable():
			if records == nil && result == audit.Refused {
				records = []audit.Record{a.record(agent, audit.Replication, "apply", ack.Scope, answer.Key)}
			}
			a.write(of, records, result, answer.Code, answer.Message)
		}
	}
}

// Rejected records that an agent does not accept an object that the hub has sent. The engine reports it after Answers.
func (a *Auditor) Rejected(agent, scope string, key engine.Key, code engine.Code, message string) {
	if a == nil || scope == kind.CommandScope || resultOf(code) != audit.Refused {
		return
	}
	of := a.state(agent)
	if of.refusals.Changed(object{scope, key}, refusal(code, message)) { // otherwise it is known, or that of a command
		a.write(of, []audit.Record{a.record(agent, audit.Replication, "apply", scope, key)}, audit.Refused, code, message)
	}
}

// Accepted records that an agent accepts an object that it had rejected.
func (a *Auditor) Accepted(agent, scope string, key engine.Key) {
	if a == nil {
		return
	}
	if of := a.known(agent); of != nil {
		of.refusals.Reset(object{scope, key})
	}
}

// refusal returns what makes a refusal a new one. The text is as long as in a line, because it is kept.
func refusal(code engine.Code, message string) string {
	return text.Truncate(string(code)+message, 1024)
}

// answered removes the commands of an item up to an answered one. It returns those of that item, and of older ones that
// are not repeated in it. If the answered item was not sent, it returns nothing.
func (a *Auditor) answered(of *agentState, key item, answer engine.AckItem) (records, replaced []audit.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := of.waiting[key]
	last := slices.IndexFunc(list, func(s sent) bool { return s.seq == answer.Seq })
	if last < 0 {
		return nil, nil
	}
	var older []audit.Record
	for i, s := range list[:last+1] {
		switch {
		case s.quiet && (answer.Code == engine.OK || i < last):
		case i == last:
			records = s.records
		default:
			older = append(older, s.records...)
		}
	}
	of.count -= last + 1
	if of.waiting[key] = list[last+1:]; len(of.waiting[key]) == 0 {
		delete(of.waiting, key)
	}
	for _, r := range older {
		if !slices.ContainsFunc(records, func(other audit.Record) bool { return other.Action == r.Action && other.RequestID == r.RequestID }) {
			replaced = append(replaced, r)
		}
	}
	return records, replaced
}

// Closed records that a session of an agent ended. The agent may have executed commands that it did not answer.
func (a *Auditor) Closed(agent string, session uint64) {
	if a != nil {
		a.end(agent, func(other uint64) bool { return other == session }, "the session ended before the result was known")
	}
}

// end writes the lines of commands without an answer in some sessions of an agent.
func (a *Auditor) end(agent string, of func(session uint64) bool, reason string) {
	state := a.known(agent)
	if state == nil {
		return
	}
	var records []audit.Record
	a.mu.Lock()
	for key, list := range state.waiting {
		if !of(key.session) {
			continue
		}
		for _, s := range list {
			if !s.quiet {
				records = append(records, s.records...)
			}
		}
		state.count -= len(list)
		delete(state.waiting, key)
	}
	a.mu.Unlock()
	slices.SortFunc(records, func(x, y audit.Record) int { return cmp.Compare(x.Object.Name, y.Object.Name) })
	a.write(state, records, audit.Unknown, "", reason)
}

// Confirmed records the confirmation of a hold. On the hub, a user gave it.
func (a *Auditor) Confirmed(agent, scope, id string) {
	if a == nil || a.side == audit.Hub && !a.confirmations.Changed(agent, id) { // it is repeated in each session
		return
	}
	r := audit.Record{Agent: agent, Type: audit.Confirmation, Action: "confirm", RequestID: id, Object: audit.Object{Resource: resources[scope]}}
	a.write(nil, []audit.Record{r}, audit.OK, "", "")
}

// Deleted records that a spoke deleted an object for the hub.
func (a *Auditor) Deleted(w reconcile.Write, failure *reconcile.Failure) {
	if a == nil || failure != nil && failure.Stale {
		return
	}
	r := audit.Record{Type: audit.Command, Action: "delete", RequestID: w.Object.Annotation(kind.SourceUID),
		Object: audit.Object{Group: w.Ref.Resource.Group, Resource: w.Ref.Resource.Plural, Namespace: w.Ref.Namespace, Name: w.Ref.Name}}
	if _, cascades := kind.StripCascade(w.Object); cascades {
		r.Reason = withResources
	}
	if failure != nil {
		a.write(nil, []audit.Record{r}, audit.Failed, failure.Code, failure.Message)
		return
	}
	a.write(nil, []audit.Record{r}, audit.OK, "", r.Reason)
}

// withResources is the reason of a deletion that includes what the Application has deployed.
const withResources = "with its resources"

// write writes lines. If of is not nil, a command that is sent again, for example in the next session, has another line
// only if its result is another one. After OK there is none, because it takes effect once.
func (a *Auditor) write(of *agentState, records []audit.Record, result audit.Result, code engine.Code, reason string) {
	for _, r := range records {
		if of != nil && r.RequestID != "" {
			key, id := command{r.Object, r.Action}, text.Truncate(r.RequestID, 256)+" "
			if of.results.Get(key) == id+string(audit.OK) || !of.results.Changed(key, id+string(result)) {
				continue
			}
		}
		r.Result, r.Code, r.Reason = result, string(code), cmp.Or(reason, r.Reason)
		a.log.Write(r)
	}
}

// resultOf returns the result that an answer means, or "" if the item waits.
func resultOf(code engine.Code) audit.Result {
	switch code {
	case engine.OK:
		return audit.OK
	case engine.NotAllowed, engine.NotAdopted, engine.OnHold:
		return audit.Refused
	case engine.Busy, engine.InUse, engine.Unavailable, engine.Overloaded, engine.Superseded, engine.ShuttingDown, engine.Reconnect:
		return ""
	}
	return audit.Failed
}

// resources has the resource of each scope.
var resources = map[string]string{
	kind.CommandScope: "applications", kind.ApplicationScope: "applications", kind.StatusScope: "applications", kind.ChildScope: "applications", kind.AppProjectScope: "appprojects",
	kind.RepositoryScope: "secrets", kind.GPGKeyScope: "configmaps",
}

func (a *Auditor) record(agent string, t audit.Type, action, scope string, key engine.Key) audit.Record {
	r := audit.Record{Agent: agent, Type: t, Action: action, Object: audit.Object{Resource: resources[scope], Namespace: key.Namespace, Name: key.Name}}
	if strings.HasPrefix(r.Object.Resource, "app") {
		r.Object.Group = kind.Applications.Group
	}
	return r
}

// recordsOf returns the commands that an item carries.
func (a *Auditor) recordsOf(agent, scope string, in engine.DeltaItem) (out []audit.Record) {
	add := func(action, id, caller string) {
		r := a.record(agent, audit.Command, action, scope, in.Key)
		r.RequestID = id
		if caller != "" {
			r.Caller, r.CallerFrom = caller, "operation"
		}
		out = append(out, r)
	}
	if scope == kind.ApplicationScope {
		switch {
		case kind.Deleting(in.Content):
			add("delete", kind.ContentUID(in.Content), "")
			out[0].Reason = withResources
		case in.Gone && in.DeletedUID != "":
			add("delete", "", "")
		case in.Gone:
			add("remove", "", "")
		}
		return out
	}
	if operation := rawjson.Get(in.Content, "operation"); operation != nil {
		action := "sync"
		if rawjson.Get(operation, "sync", "source") != nil || rawjson.Get(operation, "sync", "sources") != nil {
			action = "rollback"
		}
		add(action, kind.CommandID(in.Content), rawjson.Text(operation, "initiatedBy", "username"))
	}
	nonce := rawjson.Text(in.Content, "nonce")
	for _, action := range []string{"refresh", "hydrate"} {
		if rawjson.Text(in.Content, action) != "" {
			add(action, nonce, "")
		}
	}
	if id := rawjson.Text(in.Content, "approve", "id"); id != "" {
		add("approve", id, "")
	}
	if terminate := rawjson.Get(in.Content, "terminate"); terminate != nil {
		add("terminate", cmp.Or(rawjson.Text(terminate, "id"), rawjson.Text(terminate, "startedAt")), "")
	}
	return out
}
