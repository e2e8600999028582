package kube

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/lab"
)

func TestSecrets_PutIsConditional(t *testing.T) {
	hub := lab.Get(t).Hub()
	client, err := NewClient(hub.Admin())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := hub.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secrets-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hub.Client().CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
	})
	s := Secrets{Client: client, Namespace: ns.Name}
	put := func(secret *pki.Secret, want bool) {
		t.Helper()
		if err := s.Put(t.Context(), secret); errors.Is(err, pki.ErrBusy) == want || want && err != nil {
			t.Fatalf("stored: %v, want %t", err, want)
		}
	}
	get := func() *pki.Secret {
		t.Helper()
		got, err := s.Get(t.Context(), "a")
		if err != nil || got == nil {
			t.Fatalf("%v, %v", got, err)
		}
		return got
	}
	if got, err := s.Get(t.Context(), "a"); got != nil || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	first := &pki.Secret{Name: "a", Type: "Opaque", Labels: map[string]string{"x": "1"}, Annotations: map[string]string{"n": "1", "o": "1"}, Data: map[string][]byte{"k": {0, 255}, "gone": {1}}}
	put(first, true)
	put(first, false) // it is there
	one, two := get(), get()
	if string(one.Data["k"]) != "\x00\xff" || one.Labels["x"] != "1" || one.Type != "Opaque" {
		t.Errorf("%+v", one)
	}
	delete(one.Data, "gone")
	delete(one.Annotations, "o")
	put(one, true)
	put(two, false) // another process was faster
	now := get()
	if _, there := now.Data["gone"]; there || now.Annotations["o"] != "" || now.Annotations["n"] != "1" {
		t.Errorf("%+v", now)
	}
	if all, err := s.List(t.Context(), "x"); err != nil || len(all) != 1 || all[0].Name != "a" {
		t.Errorf("%v, %v", all, err)
	}
	if all, err := s.List(t.Context(), "y"); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if gone, err := s.Delete(t.Context(), two); gone || err != nil {
		t.Errorf("deleted one that has changed: %v, %v", gone, err)
	}
	if gone, err := s.Delete(t.Context(), now); !gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	put(now, false) // it is gone
}
