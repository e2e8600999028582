package search

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/query"
)

// Deliveries has the last delivery of each Application to its agent, of the sessions of this replica. On nil, its methods
// do nothing.
type Deliveries struct {
	mu    sync.Mutex
	items map[deliveryKey]*delivery
	order []deliveryKey // of items, oldest first
}

// maxDeliveries limits the Applications whose delivery is remembered. The oldest is forgotten.
const maxDeliveries = 10_000

type deliveryKey struct {
	agent string
	key   engine.Key
}

type delivery struct {
	Delivery
	uid string
	seq uint64
}

// Delivery is the last delivery of an Application.
type Delivery struct {
	Sent          time.Time `json:"sent"`
	Acknowledged  time.Time `json:"acknowledged,omitzero"`
	HandledMillis int64     `json:"handledMillis,omitempty"` // how long agent and API server took; 0 if the agent does not report it
	Code          string    `json:"code,omitempty"`          // why the agent rejected it
}

// NewDeliveries returns Deliveries without any.
func NewDeliveries() *Deliveries { return &Deliveries{items: map[deliveryKey]*delivery{}} }

// Sent records that Applications are sent to an agent.
func (d *Deliveries) Sent(agent string, m engine.Delta, now time.Time) {
	if d == nil || m.Scope != kind.ApplicationScope {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range m.Items {
		it := &m.Items[i]
		uid := kind.ContentUID(it.Content)
		if it.Gone || uid == "" {
			continue
		}
		k := deliveryKey{agent, it.Key}
		if d.items[k] == nil {
			d.order = append(d.order, k)
		}
		d.items[k] = &delivery{Delivery{Sent: now}, uid, it.Seq}
		if len(d.order) > maxDeliveries {
			delete(d.items, d.order[0])
			d.order = d.order[1:]
		}
	}
}

// Acknowledged records an answer of an agent.
func (d *Deliveries) Acknowledged(agent string, m engine.Ack, now time.Time) {
	if d == nil || m.Scope != kind.ApplicationScope {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range m.Items {
		it := &m.Items[i]
		if one := d.items[deliveryKey{agent, it.Key}]; one != nil && one.seq == it.Seq && one.Acknowledged.IsZero() {
			one.Acknowledged, one.HandledMillis, one.Code = now, min(it.HandledMillis, now.Sub(one.Sent).Milliseconds()), string(it.Code)
		}
	}
}

// of returns the last delivery of an Application to an agent.
func (d *Deliveries) of(agent, name, uid string) (Delivery, bool) {
	if d == nil {
		return Delivery{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, one := range d.items {
		if one.uid == uid && k.agent == agent && k.key.Name == name {
			return one.Delivery, true
		}
	}
	return Delivery{}, false
}

// deliveryResponse is the last delivery of an Application. It is nil if this replica has not sent the Application.
type deliveryResponse struct {
	Agent    string    `json:"agent"`
	Delivery *Delivery `json:"delivery,omitempty"`
}

func (s *Server) delivery(ctx context.Context, c caller, r request) (any, error) {
	for _, name := range []string{r.namespace, r.name} {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return nil, &httpError{http.StatusBadRequest, "namespace and name are not those of an Application"}
		}
	}
	q, err := query.Parse("namespace=" + r.namespace + " name=" + r.name)
	if err != nil {
		return nil, err
	}
	snapshot := s.snapshot()
	scope, err := s.access.scope(ctx, c, snapshot, q)
	if err != nil {
		return nil, err
	}
	page, err := snapshot.List(query.Request{Query: q, Limit: 1}, scope, s.clock())
	if err != nil {
		return nil, err
	}
	if len(page.Items) == 0 {
		return nil, &httpError{http.StatusNotFound, "you see no such Application"}
	}
	out := deliveryResponse{Agent: page.Items[0].Agent}
	if one, known := s.cfg.Deliveries.of(out.Agent, r.name, r.uid); known {
		out.Delivery = &one
	}
	return out, nil
}
