package principal

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// namespaces creates the namespaces of agents. It is owned by the reconciler's goroutine.
type namespaces struct {
	create   NamespaceCreate
	client   *kube.Client
	registry *fleet.Registry
	addTask  fleet.AddTask
	log      *slog.Logger
	ensured  map[string]string // agent → namespace
}

// ensure creates an agent's namespace if it is missing and may be created.
func (n *namespaces) ensure(a kind.Agent) {
	if !n.create.Enable || a.Mapping == kind.ByDestination && a.Mode == kind.Managed || n.ensured[a.Name] == a.HubNamespace {
		return
	}
	n.ensured[a.Name] = a.HubNamespace
	labels, ok := n.create.allows(a.HubNamespace)
	if !ok {
		n.log.Warn("Namespace of agent does not match the pattern", "agent", a.Name, "namespace", a.HubNamespace, "pattern", n.create.Pattern)
		return
	}
	n.addTask("namespace of "+a.Name, func(ctx context.Context) error {
		if reg, known := n.registry.Get(a.Name); !known || reg.Agent.HubNamespace != a.HubNamespace {
			return nil // it has changed since
		}
		o, err := n.client.Get(ctx, kind.Ref{Resource: kube.Namespaces, Name: a.HubNamespace})
		if err != nil || o != nil {
			return err
		}
		if err := n.client.CreateNamespace(ctx, a.HubNamespace, labels); err != nil {
			return fmt.Errorf("create namespace %s: %w", a.HubNamespace, err)
		}
		n.log.InfoContext(ctx, "Created namespace of agent", "agent", a.Name, "namespace", a.HubNamespace)
		return nil
	})
}

func (n *namespaces) forget(agent string) { delete(n.ensured, agent) }

// allows reports whether a namespace may be created, and with which labels.
func (nc NamespaceCreate) allows(name string) (map[string]string, bool) {
	if !nc.Enable {
		return nil, false
	}
	ok, err := regexp.MatchString("^(?:"+nc.Pattern+")$", name)
	return nc.Labels, nc.Pattern == "" || err == nil && ok
}
