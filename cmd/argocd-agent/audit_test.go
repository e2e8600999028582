package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAuditLog_OffUnlessTargetIsSet(t *testing.T) {
	args := append(agentArgs(t), "--healthz-port", "0", "--metrics-port", "0")
	if got := start(t, nil, args...); got.agent == nil || got.agent.Audit != nil {
		t.Errorf("%s", got.stderr)
	}
	for _, target := range []string{"-", filepath.Join(t.TempDir(), "audit.log")} {
		if got := start(t, nil, append(args, "--audit-log", target)...); got.agent == nil || got.agent.Audit == nil {
			t.Errorf("%s: %s", target, got.stderr)
		}
	}
	if got := start(t, []string{"ARGOCD_AGENT_AUDIT_LOG=" + filepath.Join(t.TempDir(), "no", "such")}, args...); got.code == 0 || !strings.Contains(got.stderr, "open audit log") {
		t.Errorf("%d: %s", got.code, got.stderr)
	}
}
