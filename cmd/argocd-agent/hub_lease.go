package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/hublease"
)

// hubLease has the settings of the Lease that decides which of two hubs is active.
type hubLease struct {
	cluster  clusterSettings
	name     string
	duration time.Duration
	maxLag   time.Duration
}

func (s *hubLease) declare(f *flags) {
	f.heading("Two hubs")
	f.add("hub-lease-kubeconfig", text(&s.cluster.kubeconfig, "FILE", ""),
		"Kubeconfig of a third cluster with the Lease that decides which hub is active. The principal of the active hub serves agents only "+
			"while the hub holds the Lease. A standby takes over if it expires.").defaultText("users promote and demote hubs")
	f.add("hub-lease-namespace", text(&s.cluster.namespace, "NAMESPACE", ""), "Namespace of the Lease.").
		defaultText("the namespace of the kubeconfig context, otherwise argocd")
	f.add("hub-lease-name", text(&s.name, "NAME", "argocd-agent-hub"), "Name of the Lease. All hubs of a group need the same.")
	f.add("hub-lease-duration", duration(&s.duration, hublease.DefaultDuration),
		"How long a hub holds the Lease without renewing it. The longer, the later a standby takes over. At least 15s.")
	f.add("hub-lease-max-lag", duration(&s.maxLag, hublease.DefaultMaxLag),
		"A standby takes over by itself only if it had all objects of the active hub at most this long, plus the duration of the Lease, ago. "+
			"Otherwise it waits for a user. At least 2m. 0s for no limit.")
}

func (s *hubLease) check(f *flags) {
	f.requires(s.cluster.kubeconfig != "", "--hub-lease-kubeconfig", "hub-lease-namespace", "hub-lease-name", "hub-lease-duration", "hub-lease-max-lag")
	if s.cluster.namespace != "" {
		f.failIf("hub-lease-namespace", dnsName(s.cluster.namespace, validation.IsDNS1123Label))
	}
	f.failIf("hub-lease-name", dnsName(s.name, validation.IsDNS1123Subdomain))
	if s.duration < hublease.MinDuration {
		f.fail("%s %s is too short: the minimum is %s", f.name("hub-lease-duration"), s.duration, hublease.MinDuration)
	}
	if s.maxLag > 0 && s.maxLag < hublease.MinMaxLag {
		f.fail("%s %s is too short: the minimum is %s. Set 0s for no limit", f.name("hub-lease-max-lag"), s.maxLag, hublease.MinMaxLag)
	}
}

func (s *hubLease) config() (hublease.Settings, error) {
	if s.cluster.kubeconfig == "" {
		return hublease.Settings{}, nil
	}
	cluster, namespace, err := s.cluster.connect()
	if err != nil {
		return hublease.Settings{}, fmt.Errorf("--hub-lease-kubeconfig: %w", err)
	}
	return hublease.Settings{Cluster: cluster, Namespace: namespace, Name: s.name, Duration: s.duration, MaxLag: s.maxLag}, nil
}
