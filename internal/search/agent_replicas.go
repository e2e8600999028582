package search

import (
	"context"
	"fmt"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// agentReplicas returns what an agent has of the objects of a hub, for a hub that lost them. They include credentials of
// repositories, so the caller must be able to get all Secrets in the namespace of Argo CD, and is named in the audit log and in
// the log of the process.
func (s *Server) agentReplicas(ctx context.Context, c caller, r request) (any, error) {
	if c.only != nil {
		return nil, errOneApplication
	}
	if err := kind.ValidateAgentName(r.agent); err != nil {
		return nil, &httpError{http.StatusBadRequest, "the path has no valid name of an agent"}
	}
	reviewing, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	record := audit.Record{Agent: r.agent, Type: audit.Live, Action: "read replicas", Caller: c.user.Name, CallerFrom: "search",
		Object: audit.Object{Resource: "replicas", Name: r.hub}, Result: audit.OK}
	ok, err := s.access.reviewAccess(reviewing, c, kube.Access{Verb: "get", Resource: kind.Secrets.Plural, Namespace: s.cfg.Namespace})
	if err != nil {
		return nil, err
	}
	if !ok {
		record.Result, record.Reason = audit.Refused, fmt.Sprintf("user %q cannot get Secrets in namespace %s", c.user.Name, s.cfg.Namespace)
		s.cfg.Audit.Write(record)
		return nil, &httpError{http.StatusForbidden, record.Reason}
	}
	page, err := s.cfg.Replicas(ctx, r.agent, r.hub, r.after)
	if err != nil {
		record.Result, record.Reason = audit.Failed, err.Error()
	}
	if r.hub != "" { // otherwise objects are counted only
		s.cfg.Audit.Write(record)
		s.cfg.Log.InfoContext(ctx, "Read the replicas of an agent", "agent", r.agent, "user", c.user.Name, "hub", r.hub, "result", record.Result)
	}
	if err != nil {
		return nil, &httpError{http.StatusBadGateway, err.Error()}
	}
	return page, nil
}
