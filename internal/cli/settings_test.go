package cli

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// ours returns a Deployment as the chart makes it.
func ours(name, role string) *appsv1.Deployment {
	labels := map[string]string{nameLabel: "sync-" + role, partOfLabel: ourPartOf, componentLabel: role}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "argocd", Labels: labels}}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = corev1.PodSpec{ServiceAccountName: "account-of-" + name, Containers: []corev1.Container{{Image: "image-of-" + name}}}
	return d
}

// The chart can give the Deployment another name.
func TestSettings_OfDeploymentWithAnotherName(t *testing.T) {
	for name, c := range map[string]struct {
		objects        []runtime.Object
		found, account string
		failure        string
	}{
		"none":         {nil, principalDeployment, principalDeployment, ""},
		"default":      {[]runtime.Object{ours(principalDeployment, "principal"), ours("other", "principal")}, principalDeployment, "account-of-" + principalDeployment, ""},
		"another name": {[]runtime.Object{ours("team-sync", "principal"), ours("spoke", "agent")}, "team-sync", "account-of-team-sync", ""},
		"two":          {[]runtime.Object{ours("a", "principal"), ours("b", "principal")}, "", "", "2 Deployments have the labels"},
	} {
		cluster := &cluster{namespace: "argocd", kube: fake.NewClientset(c.objects...)}
		s, err := cluster.principalSettings(t.Context())
		if c.failure != "" {
			if err == nil || !strings.Contains(err.Error(), c.failure) {
				t.Errorf("%s: %v, want %q", name, err, c.failure)
			}
			continue
		}
		if err != nil || s.name != c.found || s.account != c.account || s.installed != (c.objects != nil) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if image := "image-of-" + c.found; c.objects != nil && (s.image != image || cluster.imageFlag(t.Context()) != " --image "+image) {
			t.Errorf("%s: image %s, flag %s", name, s.image, cluster.imageFlag(t.Context()))
		}
	}
}
