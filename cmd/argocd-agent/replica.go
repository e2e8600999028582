package main

import (
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/forward"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/live"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// replicaSettings are what a user can say about one of several principals.
type replicaSettings struct {
	name    string
	address string
}

func (s *replicaSettings) declare(f *flags) {
	f.heading("One of several principals")
	f.add("replica-name", text(&s.name, "NAME", ""), "What this principal is called among those of the same hub: each needs a name of its own.")
	f.defaultText("replica-name", "the host's name, which is that of the pod")
	f.add("replica-address", text(&s.address, "HOST", ""),
		"Where the other principals reach this one, at the port of the resource proxy; usually the address of the pod. A request for an agent that is connected with another principal is passed on there.")
	f.defaultText("replica-address", "such requests are refused")
}

func (s *replicaSettings) check(f *flags, bad *validationErrors) {
	if wrong := validation.IsDNS1123Subdomain(strings.ToLower(s.name)); s.name != "" && len(wrong) > 0 {
		bad.add("%s %q: %s", f.name("replica-name"), s.name, wrong[0])
	}
	if err := checkHost(s.address); s.address != "" && err != nil {
		bad.add("%s: %w", f.name("replica-address"), err)
	}
}

// config puts it into the assembly's configuration, once live access is there.
func (s *replicaSettings) config(port int, cfg *principal.Config) {
	cfg.Replica = s.name
	if s.address != "" && cfg.Live.Resource != nil {
		cfg.ReplicaAddress = net.JoinHostPort(strings.Trim(s.address, "[]"), itoa(port))
	}
}

// allowReplicas lets other principals in by the port of the resource proxy.
func allowReplicas(source identity.Source, cfg *live.Settings) {
	cfg.ReplicaAuth = &identity.ReplicaAuth{Source: source, Protocol: forward.Protocol}
	cfg.ReplicaAuth.Accept(cfg.ResourceTLS)
}
