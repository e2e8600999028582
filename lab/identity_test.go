package lab_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent/argocd-agent/lab"
)

// The principal and the agents have exactly the permissions of the install manifests.
func TestIdentities_HaveInstalledPermissions(t *testing.T) {
	l := lab.Get(t)
	for _, cluster := range l.Clusters {
		client := kubernetes.NewForConfigOrDie(l.Cluster(cluster.Name).AsInstalled())
		for _, test := range []struct {
			verb, group, resource, namespace string
			want                             bool
		}{
			{"list", "argoproj.io", "applications", "argocd", true},
			{"update", "argoproj.io", "applications", "argocd", true},
			{"get", "", "secrets", "argocd", true},
			{"get", "", "secrets", "kube-system", false},
			{"create", "apps", "deployments", "default", false},
			{"delete", "", "nodes", "", false},
		} {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: test.verb, Group: test.group, Resource: test.resource, Namespace: test.namespace,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed != test.want {
				t.Errorf("%s: may %s %s %s in %q: %v, want %v", cluster.RunAs.User, test.verb, test.resource, test.group,
					test.namespace, review.Status.Allowed, test.want)
			}
		}
	}
}
