package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
)

// Permissions of a component as "verb resource.group/subresource namespace/name". The namespace * means all.
const (
	agentMay = `
		create applications.argoproj.io argocd
		delete appprojects.argoproj.io argocd
		update secrets argocd
		delete secrets argocd
		watch configmaps argocd
		watch events argocd
		update leases.coordination.k8s.io argocd
		get namespaces /kube-system
		watch customresourcedefinitions.apiextensions.k8s.io /applications.argoproj.io`
	agentMayNot = `
		list secrets *
		get secrets kube-system
		create applications.argoproj.io default
		get namespaces /default
		list customresourcedefinitions.apiextensions.k8s.io
		patch customresourcedefinitions.apiextensions.k8s.io /applications.argoproj.io
		create namespaces
		delete namespaces /default
		list events default
		create events argocd
		get pods argocd
		create pods argocd
		get pods/log default
		create pods/exec default
		get pods/exec default
		patch deployments.apps default
		get clusterroles.rbac.authorization.k8s.io
		get nodes/proxy
		create serviceaccounts/token argocd
		impersonate users`
	// With live read access.
	readerMay = `
		get pods default
		get pods/log default
		list events default
		get deployments.apps default
		get persistentvolumes
		get clusterroles.rbac.authorization.k8s.io
		get customresourcedefinitions.apiextensions.k8s.io
		get namespaces /default`
	readerMayNot = `
		get secrets default
		list secrets *
		create pods/exec default
		get pods/exec default
		get pods/attach default
		get pods/portforward default
		get pods/proxy default
		get services/proxy default
		get nodes/proxy
		patch deployments.apps default
		delete pods default
		create serviceaccounts/token default
		impersonate serviceaccounts default`
	// With live write access.
	writerMay = `
		patch deployments.apps default
		update deployments.apps/scale default
		delete pods default
		create jobs.batch default
		patch configmaps default
		patch rollouts.argoproj.io default`
	writerMayNot = `
		patch secrets default
		create secrets default
		create pods/exec default
		patch pods/ephemeralcontainers default
		create serviceaccounts default
		create serviceaccounts/token default
		patch namespaces /default
		delete applications.argoproj.io default
		create rolebindings.rbac.authorization.k8s.io default
		create clusterrolebindings.rbac.authorization.k8s.io
		bind clusterroles.rbac.authorization.k8s.io
		escalate roles.rbac.authorization.k8s.io default
		delete nodes
		patch customresourcedefinitions.apiextensions.k8s.io`
	executorMay = `
		create pods/exec default
		get pods/exec default
		create pods/attach default
		get pods/attach default
		create pods/portforward default
		get pods default`
	executorMayNot = `
		get nodes/proxy
		patch pods/ephemeralcontainers default`
	principalMay = `
		create applications.argoproj.io anywhere
		delete appprojects.argoproj.io argocd
		get namespaces /kube-system
		watch customresourcedefinitions.apiextensions.k8s.io /applications.argoproj.io
		create events anywhere
		patch events anywhere
		patch agents.argocd-agent.argoproj-labs.io/status argocd
		create secrets argocd
		delete secrets argocd
		patch configmaps argocd
		delete leases.coordination.k8s.io argocd`
	principalMayNot = `
		list events anywhere
		delete events anywhere
		get appprojects.argoproj.io default
		patch appprojects.argoproj.io argocd
		get namespaces /default
		list namespaces
		update agents.argocd-agent.argoproj-labs.io argocd
		delete agents.argocd-agent.argoproj-labs.io argocd
		update secrets argocd
		update configmaps argocd
		update leases.coordination.k8s.io argocd
		list secrets *
		get secrets kube-system
		get configmaps kube-system
		create namespaces
		delete namespaces /default
		update agents.argocd-agent.argoproj-labs.io default
		delete configmaps argocd
		get pods argocd
		get pods/log argocd
		create pods/exec argocd
		list deployments.apps argocd
		list applicationsets.argoproj.io argocd
		create serviceaccounts/token argocd
		get clusterroles.rbac.authorization.k8s.io
		get nodes/proxy
		impersonate users`
)

// The API server is asked about the ServiceAccounts: required permissions are granted, and others are not.
func rightsAreMinimal(t *testing.T, l *lab.Lab) {
	t.Helper()
	const agent, principal = "argocd-agent-agent", "argocd-agent-principal"
	silent := onSpoke + ",agent.live.read=false,agent.live.write=false"
	for _, tc := range []struct {
		name, cluster, account, values string
		may, mayNot                    string
	}{
		{"an agent without live access", "managed", agent, silent, agentMay, agentMayNot},
		{"one that reads", "managed", agent, silent + ",agent.live.read=true", agentMay + readerMay, readerMayNot},
		{"one as it is by default", "managed", agent, onSpoke, agentMay + readerMay + writerMay, writerMayNot},
		{"one with terminals", "managed", agent, silent + ",agent.live.exec=true", agentMay + executorMay, executorMayNot},
		{"one that shows Secrets", "managed", agent, onSpoke + ",agent.live.secrets=true", "get secrets default", "update secrets default\ndelete secrets default\ncreate pods/exec default"},
		{"one that Argo CD can use to act as an account", "managed", agent, onSpoke + ",agent.live.serviceAccounts={default/deployer}", "impersonate serviceaccounts default/deployer",
			"impersonate serviceaccounts default/other\nimpersonate serviceaccounts default\nimpersonate serviceaccounts argocd/deployer\nimpersonate users\nimpersonate groups"},
		{"one that records callers", "managed", agent, onSpoke + ",agent.live.callers.mode=record", `
			impersonate serviceaccounts argocd/argocd-agent-agent
			impersonate userextras.authentication.k8s.io/argocd-agent-caller
			impersonate userextras.authentication.k8s.io/argocd-agent-caller-from`,
			"impersonate serviceaccounts argocd/other\nimpersonate users\nimpersonate users /alice\nimpersonate groups\nimpersonate userextras.authentication.k8s.io/scopes"},
		{"one that impersonates users", "managed", agent, onSpoke + ",agent.live.callers.mode=impersonate,agent.live.callers.users={alice},agent.live.callers.groups={dev}",
			"impersonate users /alice\nimpersonate groups /dev", "impersonate users\nimpersonate users /bob\nimpersonate groups\nimpersonate groups /system:masters\nimpersonate serviceaccounts default"},
		{"one with Applications everywhere", "managed", agent, silent + ",agent.settings.destination-based-mapping=true",
			agentMay + "\nupdate applications.argoproj.io default\ncreate namespaces", "update appprojects.argoproj.io default\ndelete namespaces /default\nget secrets default"},
		{"a principal", "hub", principal, onHub, principalMay, principalMayNot},
		{"one that makes namespaces", "hub", principal, onHub + ",principal.settings.namespace-create-enable=true", principalMay + "\ncreate namespaces", "delete namespaces /default"},
		{"one that answers searches", "hub", principal, onHub + ",principal.settings.search-port=8444",
			principalMay + "\ncreate tokenreviews.authentication.k8s.io\ncreate subjectaccessreviews.authorization.k8s.io\nget configmaps kube-system/extension-apiserver-authentication",
			"get configmaps kube-system/other\nlist configmaps kube-system\ncreate serviceaccounts argocd\nimpersonate users"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if out, err := installRelease(t, l, tc.cluster, lab.ArgoCDNamespace, tc.values); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			c := l.Cluster(tc.cluster)
			user := "system:serviceaccount:" + lab.ArgoCDNamespace + ":" + tc.account
			// The API server needs a moment to apply changed roles.
			lab.Await(t, "the rights to be those of the manifests", func(ctx context.Context) error {
				for right := range rights(tc.may) {
					if allowed, err := permitted(ctx, c, user, right); err != nil || !allowed {
						return fmt.Errorf("not permitted, but needed: %s (%w)", right, err)
					}
				}
				for right := range rights(tc.mayNot) {
					if allowed, err := permitted(ctx, c, user, right); err != nil || allowed {
						return fmt.Errorf("permitted, but not needed: %s (%w)", right, err)
					}
				}
				return nil
			})
		})
	}
}

func rights(list string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(list) {
			if line = strings.TrimSpace(line); line != "" && !yield(line) {
				return
			}
		}
	}
}

// permitted asks the API server whether a user has a permission.
func permitted(ctx context.Context, c *lab.Cluster, user, right string) (bool, error) {
	words := strings.Fields(right)
	resource, subresource, _ := strings.Cut(words[1], "/")
	resource, group, _ := strings.Cut(resource, ".")
	namespace, name := "", ""
	if len(words) > 2 {
		namespace, name, _ = strings.Cut(words[2], "/")
	}
	if namespace == "*" {
		namespace = ""
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + lab.ArgoCDNamespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: words[0], Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name},
	}}
	answer, err := c.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
