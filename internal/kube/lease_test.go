package kube

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestLeaseSpec_IsRead(t *testing.T) {
	for _, holder := range []string{"replica-1", ""} {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "a"}, "spec": LeaseSpec(holder, 15*time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		o, err := kind.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, duration := LeaseHolder(o); got != holder || duration != 15*time.Second {
			t.Errorf("holder %q, duration %v", got, duration)
		}
		if age := time.Since(LeaseRenewed(o)); age < 0 || age > time.Minute {
			t.Errorf("renewed %v ago", age)
		}
		if null := string(o.Get("spec", "holderIdentity")) == "null"; null != (holder == "") {
			t.Errorf("holder %q is written as %s", holder, o.Get("spec", "holderIdentity"))
		}
	}
}
