package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

const (
	replicasTimeout    = 30 * time.Second
	replicasPageSize   = 4 << 20  // bytes of content in a response, plus one object
	maxReplicasRequest = 16 << 10 // bytes
)

// serveReplicas serves the tunnel target with which a hub that lost its objects reads them back: one request, which is GET
// /?hub=IDENTITY&after=POSITION. The response is a reconcile.ReplicaPage.
//
// The objects are those of the hub: they have its ownership annotations. AgentPolicies limit it like live access: without
// liveAccess.read nothing is sent, without liveAccess.secrets no credentials.
func (a *agent) serveReplicas(ctx context.Context, conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(replicasTimeout))
	request, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, maxReplicasRequest)))
	if err != nil {
		return
	}
	response := &http.Response{ProtoMajor: 1, ProtoMinor: 1, StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Close: true}
	page, refused := a.replicas(ctx, request)
	body, err := json.Marshal(page)
	if err != nil {
		refused = "failed to encode objects: " + err.Error()
	}
	if refused != "" {
		response.StatusCode, response.Header, body = http.StatusForbidden, nil, []byte(refused)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	_ = response.Write(conn) // fails only if the hub has gone
}

// replicas returns a page, or why there is none.
func (a *agent) replicas(ctx context.Context, r *http.Request) (page reconcile.ReplicaPage, refused string) {
	hub, after := r.URL.Query().Get("hub"), r.URL.Query().Get("after")
	record := audit.Record{Type: audit.Live, Action: "read replicas", Object: audit.Object{Resource: "replicas", Name: hub}, Result: audit.OK}
	decided := a.policies.decided.Load()
	switch {
	case decided == nil:
		refused = "AgentPolicies are not read yet"
	case decided.live == nil:
		refused = decided.changed.Frozen
	case !decided.live.Read:
		refused = "an AgentPolicy of the workload cluster (liveAccess.read) forbids it"
	}
	if refused != "" {
		record.Result, record.Reason = audit.Refused, refused
		a.cfg.Audit.Write(record)
		return page, refused
	}
	if hub != "" { // otherwise objects are counted only
		a.cfg.Audit.Write(record)
	}
	read := make(chan reconcile.ReplicaPage, 1) // Do can return before the core has answered
	if a.runner.Do(ctx, func(n *reconcile.Reconciler) { read <- n.Replicas(hub, after, replicasPageSize, decided.live.Secrets) }) != nil {
		return page, "the agent stops"
	}
	return <-read, ""
}
