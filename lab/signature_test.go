package lab_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// Argo CD on a spoke verifies signatures with the keys of its ConfigMap, as in a pod.
func TestSignature_OnlySignedCommitsAreDeployed(t *testing.T) {
	l := lab.Get(t)
	c := l.Cluster("autonomous")
	store, err := l.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := store.Signer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	repository, err := store.Create(t.Context(), "signed-more", gitserver.RepoOptions{Sample: gitserver.SampleSigned, BaseURL: l.Git.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = repository.Remove() })
	// One more signed commit: Argo CD treats a branch with an annotated tag at its tip as a tag, and fails to verify
	// it.
	more := map[string]string{"more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n"}
	if _, err := repository.Commit(t.Context(), "Add more", more, gitserver.SignedBy(signer)); err != nil {
		t.Fatal(err)
	}
	keys, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "argocd-gpg-keys-cm", "labels": map[string]any{"app.kubernetes.io/part-of": "argocd"}},
		"data":     map[string]any{signer.KeyID(): signer.PublicKey()},
	})
	if err != nil {
		t.Fatal(err)
	}
	project := fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: signed-only}
spec:
  sourceRepos: ["*"]
  destinations: [{namespace: "*", server: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
  signatureKeys: [{keyID: %s}]
`, signer.KeyID())
	for _, manifest := range []string{string(keys), project} {
		if err := c.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(name, revision string) {
		t.Helper()
		app := application(l, name, repository.Name(), ".", "lab-test-"+name)
		app = strings.NewReplacer("project: default", "project: signed-only", "targetRevision: main", "targetRevision: "+revision).Replace(app)
		if err := c.Apply(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Dynamic().Resource(applications).Namespace("argocd").Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	status := func(ctx context.Context, name string) (string, error) {
		app, err := c.Dynamic().Resource(applications).Namespace("argocd").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(app.Object["status"]), nil
	}
	apply("unsigned", "unsigned")
	lab.Await(t, "the unsigned commit to be refused", func(ctx context.Context) error {
		now, err := status(ctx, "unsigned")
		if err == nil && !strings.Contains(now, "not signed") {
			err = fmt.Errorf("it is %s", now)
		}
		return err
	})
	apply("signed", "main")
	lab.Await(t, "the signed commit to be deployed", func(ctx context.Context) error {
		now, err := status(ctx, "signed")
		if err == nil && !(strings.Contains(now, "status:Synced") && strings.Contains(now, "status:Healthy")) {
			err = fmt.Errorf("it is %s", now)
		}
		return err
	})
}
