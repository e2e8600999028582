// Package command writes the audit lines of commands and refusals, from the messages of sessions. Both sides see the same
// messages: the hub sends items and receives their acknowledgements, the agent receives items and sends them.
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
)

// Auditor writes the lines of one side. If nil, it writes nothing. It is safe for concurrent use.
type Auditor struct {
	log  *audit.Log
	side audit.Side

	refusals      logonce.Last[object]
	confirmations logonce.Last[string] // last ID by agent

	mu      sync.Mutex
	waiting map[item][]sent // commands without an answer, oldest first
	count   int
}

// object is a key of an agent's scope.
type object struct {
	agent, scope string
	key          engine.Key
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

// maxWaiting bounds the commands without an answer. If there are more, their lines are written at once, without result.
const maxWaiting = 4096

// New returns the Auditor of one side, or nil if there is no audit log.
func New(log *audit.Log, side audit.Side) *Auditor {
	if log == nil {
		return nil
	}
	return &Auditor{log: log, side: side, waiting: map[item][]sent{}}
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
			a.wait(item{session, object{agent, d.Scope, in.Key}}, sent{in.Seq, records, a.side == audit.Spoke && d.Scope == kind.ApplicationScope})
		}
	}
}

func (a *Auditor) wait(key item, s sent) {
	a.mu.Lock()
	full := a.count >= maxWaiting
	if !full {
		a.waiting[key] = append(a.waiting[key], s)
		a.count++
	}
	a.mu.Unlock()
	if full && !s.quiet {
		a.write(s.records, audit.Unknown, "", "too many commands wait for an answer")
	}
}

// Answers records the acknowledgements of items by the agent.
func (a *Auditor) Answers(agent string, session uint64, ack engine.Ack) {
	if a == nil {
		return
	}
	for _, answer := range ack.Items {
		key := object{agent, ack.Scope, answer.Key}
		records, replaced := a.answered(item{session, key}, answer)
		a.write(replaced, audit.Unknown, "", "replaced by a later command")
		switch result := resultOf(answer.Code); {
		case result == "": // it waits, and is sent again
		case result == audit.OK:
			a.refusals.Reset(key)
			a.write(records, result, "", "")
		case records != nil && !answer.Code.Retryable(), a.refusals.Changed(key, string(answer.Code)+answer.Message):
			if records == nil && result == audit.Refused {
				records = []audit.Record{a.record(agent, audit.Replication, "apply", ack.Scope, answer.Key)}
			}
			a.write(records, result, answer.Code, answer.Message)
		}
	}
}

// answered removes the commands of an item up to an answered one. It returns those of that item, and of older ones that
// are not repeated in it.
func (a *Auditor) answered(key item, answer engine.AckItem) (records, replaced []audit.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.waiting[key]
	var older []audit.Record
	for len(list) > 0 && list[0].seq <= answer.Seq {
		switch {
		case list[0].quiet && (answer.Code == engine.OK || list[0].seq != answer.Seq):
		case list[0].seq == answer.Seq:
			records = list[0].records
		default:
			older = append(older, list[0].records...)
		}
		list = list[1:]
		a.count--
	}
	if a.waiting[key] = list; len(list) == 0 {
		delete(a.waiting, key)
	}
	for _, r := range older {
		if !slices.ContainsFunc(records, func(other audit.Record) bool { return other.Action == r.Action && other.RequestID == r.RequestID }) {
			replaced = append(replaced, r)
		}
	}
	return records, replaced
}

// Closed records that a session ended. The agent may have executed commands that it did not answer.
func (a *Auditor) Closed(session uint64) {
	if a == nil {
		return
	}
	var records []audit.Record
	a.mu.Lock()
	for key, list := range a.waiting {
		if key.session != session {
			continue
		}
		for _, s := range list {
			if !s.quiet {
				records = append(records, s.records...)
			}
		}
		a.count -= len(list)
		delete(a.waiting, key)
	}
	a.mu.Unlock()
	slices.SortFunc(records, func(x, y audit.Record) int { return cmp.Compare(x.Object.Name, y.Object.Name) })
	a.write(records, audit.Unknown, "", "the session ended before the result was known")
}

// Confirmed records the confirmation of a hold. On the hub, a user gave it.
func (a *Auditor) Confirmed(agent, scope, id string) {
	if a == nil || a.side == audit.Hub && !a.confirmations.Changed(agent, id) { // it is repeated in each session
		return
	}
	r := audit.Record{Agent: agent, Type: audit.Confirmation, Action: "confirm", RequestID: id, Object: audit.Object{Resource: resources[scope]}}
	a.write([]audit.Record{r}, audit.OK, "", "")
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
		a.write([]audit.Record{r}, audit.Failed, failure.Code, failure.Message)
		return
	}
	a.write([]audit.Record{r}, audit.OK, "", r.Reason)
}

// withResources is the reason of a deletion that includes what the Application has deployed.
const withResources = "with its resources"

func (a *Auditor) write(records []audit.Record, result audit.Result, code engine.Code, reason string) {
	for _, r := range records {
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
	case engine.Busy, engine.InUse, engine.Unavailable, engine.Overloaded, engine.Superseded, engine.ShuttingDown:
		return ""
	}
	return audit.Failed
}

// resources has the resource of each scope.
var resources = map[string]string{
	kind.CommandScope: "applications", kind.ApplicationScope: "applications", kind.StatusScope: "applications", kind.AppProjectScope: "appprojects",
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
		case in.Gone && in.Deleted:
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
