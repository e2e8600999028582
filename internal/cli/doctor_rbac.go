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
	namespace                   string // if empty and not clusterWide, that of Argo CD
}

func (r permission) String() string {
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	if r.name != "" {
		resource += " " + r.name
	}
	switch {
	case r.clusterWide:
		resource += " in all namespaces"
	case r.namespace != "":
		resource += " in namespace " + r.namespace
	}
	return r.verb + " " + resource
}

// requiredPermissions returns the permissions in the manifests of this version for principal or agent. If there are
// namespaces, they are those of a principal with --namespaced.
func requiredPermissions(component string, namespaces []string) ([]permission, error) {
	if len(namespaces) == 0 {
		manifests, err := install.RBAC(component)
		if err != nil {
			return nil, err
		}
		return permissionsIn(manifests, component)
	}
	own, each, err := install.NamespacedRBAC()
	if err != nil {
		return nil, err
	}
	all, err := permissionsIn(own, component)
	if err != nil {
		return nil, err
	}
	inEach, err := permissionsIn(each, component)
	for _, namespace := range namespaces {
		for _, one := range inEach {
			one.namespace = namespace
			all = append(all, one)
		}
	}
	return all, err
}

func permissionsIn(manifests []byte, component string) ([]permission, error) {
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
						all = append(all, permission{group: group, resource: resource, name: name, verb: verb, clusterWide: clusterWide})
					}
				}
			}
		}
	}
	return all
}

// permissions checks the permissions of a ServiceAccount with access reviews.
func (e *checkRun) permissions(ctx context.Context, c *cluster, account, component string, namespaces []string) {
	all, err := requiredPermissions(component, namespaces)
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
	files := "/rbac.yaml"
	switch {
	case len(namespaces) > 0:
		files += " and, in each namespace of --allowed-namespaces, rbac-namespaced.yaml"
	case component == "principal":
		files += " and rbac-all-namespaces.yaml"
	}
	e.problem("rbac", "apply the chart or install/kustomize/"+component+files+" of this version", "ServiceAccount %s lacks permissions: %s", account, shown)
}

func (r permission) attributes(namespace string) *authorizationv1.ResourceAttributes {
	resource, sub, _ := strings.Cut(r.resource, "/")
	a := &authorizationv1.ResourceAttributes{Group: r.group, Resource: resource, Subresource: sub, Name: r.name, Verb: r.verb, Namespace: namespace}
	switch {
	case r.clusterWide:
		a.Namespace = ""
	case r.namespace != "":
		a.Namespace = r.namespace
	}
	return a
}
