package cli

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/install"
)

// permission is one RBAC permission that a component needs.
type permission struct {
	group, resource, name, verb string
	clusterWide                 bool
}

func (r permission) String() string {
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	if r.name != "" {
		resource += " " + r.name
	}
	if r.clusterWide {
		resource += " in all namespaces"
	}
	return r.verb + " " + resource
}

// requiredPermissions returns the permissions in the manifests of this version for principal or agent.
func requiredPermissions(component string) ([]permission, error) {
	manifests, err := install.RBAC(component)
	if err != nil {
		return nil, err
	}
	var all []permission
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same form
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			return nil, fmt.Errorf("decode roles of %s: %w", component, err)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			all = append(all, expandRules(role.Rules, role.Kind == "ClusterRole")...)
		}
	}
	return all, nil
}

func expandRules(rules []rbacv1.PolicyRule, clusterWide bool) []permission {
	var all []permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, permission{group, resource, name, verb, clusterWide})
					}
				}
			}
		}
	}
	return all
}

// permissions checks the permissions of a ServiceAccount with access reviews.
func (e *checkRun) permissions(ctx context.Context, c *cluster, account, component string) {
	all, err := requiredPermissions(component)
	if err != nil {
		e.skipped("rbac", err)
		return
	}
	if _, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Get(ctx, account, metav1.GetOptions{}); err != nil {
		if notFound(err) {
			e.problem("rbac", "install the chart or install/kustomize/"+component, "ServiceAccount %s not found", account)
		} else {
			e.skipped("rbac", c.explain(err))
		}
		return
	}
	missing := make([]bool, len(all))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	for i, r := range all {
		work.Go(func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + c.namespace + ":" + account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace, "system:authenticated"},
				ResourceAttributes: r.attributes(c.namespace),
			}}
			answer, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil {
				missing[i] = !answer.Status.Allowed
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		e.skipped("rbac", c.explain(err))
		return
	}
	var denied []string
	for i, r := range all {
		if missing[i] {
			denied = append(denied, r.String())
		}
	}
	if len(denied) == 0 {
		e.ok("rbac", "ServiceAccount %s has all %d required permissions", account, len(all))
		return
	}
	shown := strings.Join(denied[:min(len(denied), 6)], "; ")
	if len(denied) > 6 {
		shown += fmt.Sprintf("; and %d more", len(denied)-6)
	}
	e.problem("rbac", "apply the chart or install/kustomize/"+component+"/rbac.yaml of this version", "ServiceAccount %s lacks permissions: %s", account, shown)
}

func (r permission) attributes(namespace string) *authorizationv1.ResourceAttributes {
	resource, sub, _ := strings.Cut(r.resource, "/")
	a := &authorizationv1.ResourceAttributes{Group: r.group, Resource: resource, Subresource: sub, Name: r.name, Verb: r.verb, Namespace: namespace}
	if r.clusterWide {
		a.Namespace = ""
	}
	return a
}
