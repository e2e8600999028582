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

// permission is something that a program has to be allowed.
type permission struct {
	group, resource, name, verb string
	everywhere                  bool // in all namespaces, or of none
}

func (r permission) String() string {
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	if r.name != "" {
		resource += " " + r.name
	}
	if r.everywhere {
		resource += " in all namespaces"
	}
	return r.verb + " " + resource
}

// neededRights are those that the manifests of this version give a program, principal or agent.
func neededRights(program string) ([]permission, error) {
	manifests, err := install.RBAC(program)
	if err != nil {
		return nil, err
	}
	var all []permission
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same form
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			return nil, fmt.Errorf("read the roles of %s: %w", program, err)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			all = append(all, rightsOf(role.Rules, role.Kind == "ClusterRole")...)
		}
	}
	return all, nil
}

// rightsOf spells rules out.
func rightsOf(rules []rbacv1.PolicyRule, everywhere bool) []permission {
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
						all = append(all, permission{group, resource, name, verb, everywhere})
					}
				}
			}
		}
	}
	return all
}

// permissions asks the API server whether a ServiceAccount may do what its program has to.
func (e *checkRun) permissions(ctx context.Context, c *cluster, account, role string) {
	all, err := neededRights(role)
	if err != nil {
		e.unknown("rights", err)
		return
	}
	if _, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Get(ctx, account, metav1.GetOptions{}); err != nil {
		if notFound(err) {
			e.problem("rights", "install the manifests: the chart, or install/kustomize/"+role, "there is no ServiceAccount %s", account)
		} else {
			e.unknown("rights", c.explain(err))
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
		e.unknown("rights", c.explain(err))
		return
	}
	var lacks []string
	for i, r := range all {
		if missing[i] {
			lacks = append(lacks, r.String())
		}
	}
	if len(lacks) == 0 {
		e.ok("rights", "ServiceAccount %s may do all %d things that it has to", account, len(all))
		return
	}
	shown := strings.Join(lacks[:min(len(lacks), 6)], "; ")
	if len(lacks) > 6 {
		shown += fmt.Sprintf("; and %d more", len(lacks)-6)
	}
	e.problem("rights", "apply the chart, or install/kustomize/"+role+"/rbac.yaml, of this version again", "ServiceAccount %s may not: %s", account, shown)
}

func (r permission) attributes(namespace string) *authorizationv1.ResourceAttributes {
	resource, sub, _ := strings.Cut(r.resource, "/")
	a := &authorizationv1.ResourceAttributes{Group: r.group, Resource: resource, Subresource: sub, Name: r.name, Verb: r.verb, Namespace: namespace}
	if r.everywhere {
		a.Namespace = ""
	}
	return a
}
