package principal

import (
	"context"
	"fmt"
	"regexp"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// ensureNamespace creates an agent's namespace, if that is wanted and it is
// missing. It is looked at when the agent becomes known, or gets another.
func (p *principal) ensureNamespace(a kind.Agent) {
	if !p.cfg.NamespaceCreate.Enable || a.Mapping == kind.ByDestination && a.Mode == kind.Managed || p.ensuredNamespaces[a.Name] == a.HubNamespace {
		return
	}
	p.ensuredNamespaces[a.Name] = a.HubNamespace
	labels, ok := p.cfg.NamespaceCreate.allows(a.HubNamespace)
	if !ok {
		p.log.Warn("the agent's namespace does not match the pattern for namespaces to create", "agent", a.Name, "namespace", a.HubNamespace, "pattern", p.cfg.NamespaceCreate.Pattern)
		return
	}
	p.tasks.add("namespace of "+a.Name, func(ctx context.Context) error {
		if now, known := p.registry.get(a.Name); !known || now.Agent.HubNamespace != a.HubNamespace {
			return nil // nobody wants it any more, and this may have failed for long
		}
		there, err := p.client.Get(ctx, kind.Ref{Resource: kube.Namespaces, Name: a.HubNamespace})
		if err != nil || there != nil {
			return err
		}
		if err := p.client.CreateNamespace(ctx, a.HubNamespace, labels); err != nil {
			return fmt.Errorf("create namespace %s: %w", a.HubNamespace, err)
		}
		p.log.InfoContext(ctx, "created the agent's namespace", "agent", a.Name, "namespace", a.HubNamespace)
		return nil
	})
}

// allows reports whether a namespace may be created, and with which labels.
func (nc NamespaceCreate) allows(name string) (map[string]string, bool) {
	if !nc.Enable {
		return nil, false
	}
	ok, err := regexp.MatchString("^(?:"+nc.Pattern+")$", name)
	return nc.Labels, nc.Pattern == "" || err == nil && ok
}
