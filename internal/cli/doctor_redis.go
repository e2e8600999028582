package cli

import (
	"context"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const redisService = "argocd-redis"

// redis checks that Redis is ready and that a component can connect to it.
func (e *checkRun) redis(ctx context.Context, c *cluster, component, address string, set *settings, offline bool) {
	if address != "" && !strings.HasPrefix(address, redisService) {
		e.note("redis", "%s uses %s, which is not checked", component, address)
		return
	}
	service, err := c.kube.CoreV1().Services(c.namespace).Get(ctx, redisService, metav1.GetOptions{})
	switch {
	case notFound(err):
		e.problem("redis", "install Redis of Argo CD, or configure another Redis; resource trees need it", "Service %s not found", redisService)
		return
	case err != nil:
		e.skipped("redis", c.explain(err))
		return
	}
	found, err := c.kube.DiscoveryV1().EndpointSlices(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + redisService})
	if err != nil {
		e.skipped("redis", c.explain(err))
		return
	}
	ready := 0
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				ready++
			}
		}
	}
	if ready == 0 {
		e.problem("redis", "kubectl describe deployment argocd-redis", "Service %s has no ready endpoint", redisService)
		return
	}
	policies, err := c.kube.NetworkingV1().NetworkPolicies(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		e.skipped("redis", c.explain(err))
		return
	}
	pod := labels.Set{"app.kubernetes.io/name": component, "app.kubernetes.io/part-of": "argocd-agent"}
	if by := blockingPolicy(policies.Items, labels.Set(service.Spec.Selector), pod); by != "" {
		e.problem("redis", "add an ingress rule for pods with label app.kubernetes.io/name="+component, "NetworkPolicy %s blocks connections from %s to Redis", by, component)
		return
	}
	e.ok("redis", "Service %s has %s", redisService, pluralize(ready, "ready endpoint"))
	if !offline {
		e.dialRedis(ctx, c, set, found.Items)
	}
}

// blockingPolicy returns the name of a policy that selects the target, if no policy allows the client.
func blockingPolicy(policies []networkingv1.NetworkPolicy, target, client labels.Set) string {
	by := ""
	for _, policy := range policies {
		if !selects(&policy.Spec.PodSelector, target) || !forIngress(&policy) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 {
				return ""
			}
			for _, from := range rule.From {
				if from.IPBlock != nil || from.NamespaceSelector != nil { // cannot be decided by labels, so assume that it allows the client
					return ""
				}
				if selects(from.PodSelector, client) {
					return ""
				}
			}
		}
		by = policy.Name
	}
	return by
}

func forIngress(policy *networkingv1.NetworkPolicy) bool {
	return len(policy.Spec.PolicyTypes) == 0 || slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}

func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}
