package lab_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
)

func tryFullDisk(t *testing.T, l *lab.Lab) {
	t.Helper()
	hub := l.Hub()
	mustWrite(t, hub, "before-it-was-full")
	if err := hub.FillDisk(t.Context()); err != nil {
		t.Fatal(err)
	}
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}}
	_, err := hub.Client().CoreV1().ConfigMaps("default").Create(t.Context(), note, metav1.CreateOptions{})
	for deadline := time.Now().Add(time.Minute); err != nil && strings.Contains(err.Error(), "connection refused") && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		_, err = hub.Client().CoreV1().ConfigMaps("default").Create(t.Context(), note, metav1.CreateOptions{}) // the API server reconnects to etcd
	}
	if err == nil || !strings.Contains(err.Error(), "etcdserver: mvcc: database space exceeded") {
		t.Errorf("a write on a full disk: %v", err)
	}
	if there, err := exists(t.Context(), hub, "before-it-was-full"); !there {
		t.Errorf("what was written before cannot be read: %v", err)
	}
	if err := hub.FreeDisk(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, hub, "after-it-was-full")
	mustDelete(t, hub, "before-it-was-full")
	mustDelete(t, hub, "after-it-was-full")
}
