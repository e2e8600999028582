package principal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/lab"
)

// What we fill a list to is what a real API server takes, with all that it notes
// itself about field managers. A full page does not block deletions.
func TestAgent_DeletionWithFullBlocklist(t *testing.T) {
	o := newLabHub(t)
	full := map[string]string{}
	for size := 0; size <= 512<<10; {
		key, note := printOf(fmt.Sprint(len(full))), "agent team-a-cluster was deleted on 2026-01-01T00:00:00Z; the certificate expires on 2999-01-01T00:00:00Z"
		full[key] = note
		size += len(key) + len(note)
	}
	t.Logf("%d entries", len(full))
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: revoke.ConfigMap}}
	lists := o.client.CoreV1().ConfigMaps(o.namespace)
	_, err := lists.Create(t.Context(), list, metav1.CreateOptions{})
	o.must(err)
	list.Data = full
	_, err = lists.Update(t.Context(), list, metav1.UpdateOptions{FieldManager: "user"})
	o.must(err)
	o.open()
	deleted := func(name, fingerprint string) {
		t.Helper()
		o.must(o.declare(name, `{"mode":"managed"}`))
		o.secretBecomes("cluster-"+name, "to be made", func(*corev1.Secret) bool { return true })
		_, err := o.agents.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"certificate":{"fingerprint":%q}}}`, fingerprint), metav1.PatchOptions{}, "status")
		o.must(err)
		o.must(o.agents.Delete(t.Context(), name, metav1.DeleteOptions{}))
		o.goes(name)
	}
	deleted("a", printOf("a"))
	more, err := lists.List(t.Context(), metav1.ListOptions{LabelSelector: kind.Prefix + "tls-blocklist"})
	o.must(err)
	if len(more.Items) != 1 || more.Items[0].Data[printOf("a")] == "" {
		t.Fatalf("it is continued by %v", more.Items)
	}
	// A user has made room.
	o.must(lists.Delete(t.Context(), revoke.ConfigMap, metav1.DeleteOptions{}))
	for i := 0; ; i++ {
		name := fmt.Sprintf("b%d", i)
		deleted(name, printOf(name))
		first, err := lists.Get(t.Context(), revoke.ConfigMap, metav1.GetOptions{})
		if err == nil && first.Data[printOf(name)] != "" {
			break
		}
		if i == 20 { // it may not have been seen at once
			t.Fatalf("the first list is not used again: %v", err)
		}
	}
	lab.Await(t, "the list that continues it to stay as it is", func(ctx context.Context) error {
		still, err := lists.Get(ctx, more.Items[0].Name, metav1.GetOptions{})
		if err == nil && still.Data[printOf("a")] == "" {
			err = errors.New("an entry has gone")
		}
		return err
	})
}

func printOf(text string) string { return fmt.Sprintf("%X", sha256.Sum256([]byte(text))) }
