package fleet

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// upgradeTest has a registry with Agent a and the requests that were sent.
type upgradeTest struct {
	*Upgrades
	registry *Registry
	sent     []engine.Upgrade
	to       []engine.Epoch
}

func newUpgradeTest(t *testing.T) *upgradeTest {
	t.Helper()
	r := NewRegistry(RegistryConfig{})
	u := &upgradeTest{registry: r}
	u.Upgrades = NewUpgrades(r, func(agent string, epoch engine.Epoch, m engine.Upgrade) {
		if agent != "a" {
			t.Errorf("sent to %s", agent)
		}
		u.sent, u.to = append(u.sent, m), append(u.to, epoch)
	})
	u.want(nil)
	return u
}

// want changes spec.upgrade.
func (u *upgradeTest) want(upgrade *v1alpha1.Upgrade) {
	rec := agentRecord{Agent: agent("a", 1, "managed")}
	rec.Spec.Upgrade = upgrade
	u.registry.objects["a"] = rec
	for _, f := range u.registry.listeners {
		f("a")
	}
}

func TestUpgrades_AreSentToAgentsThatKnowThem(t *testing.T) {
	u := newUpgradeTest(t)
	first, second := engine.Epoch{Incarnation: 1, Attempt: 1}, engine.Epoch{Incarnation: 1, Attempt: 2}
	expect := func(what string, count int) {
		t.Helper()
		if len(u.sent) != count {
			t.Fatalf("%s: %d requests were sent, want %d", what, len(u.sent), count)
		}
	}
	u.want(&v1alpha1.Upgrade{ID: "1", Version: "v2", Timeout: "5m"})
	expect("an agent that reported nothing", 0)
	u.Received("a", first, engine.UpgradeState{Phase: v1alpha1.UpgradeReady})
	expect("an agent that reported", 1)
	if u.sent[0] != (engine.Upgrade{ID: "1", Version: "v2", TimeoutMillis: 300_000}) || u.to[0] != first {
		t.Errorf("%+v was sent to %v", u.sent[0], u.to[0])
	}
	u.Received("a", first, engine.UpgradeState{ID: "1", Phase: v1alpha1.UpgradePreparing})
	u.want(&v1alpha1.Upgrade{ID: "1", Version: "v2", Timeout: "5m"})
	expect("the same request", 1)
	u.want(&v1alpha1.Upgrade{ID: "2", Version: "v3", Timeout: "5m"})
	expect("another request", 2)
	u.want(nil)
	expect("no request", 2)

	u.want(&v1alpha1.Upgrade{ID: "2", Version: "v3", Timeout: "5m"})
	expect("the request of this session", 2)
	u.Received("a", second, engine.UpgradeState{ID: "2", Phase: v1alpha1.UpgradeUpgrading})
	expect("a new session", 3)
	u.Closed("a", first)
	u.Received("a", first, engine.UpgradeState{Phase: v1alpha1.UpgradeReady})
	expect("a late message of the session before", 3)
	if s := u.status("a", second); s == nil || s.Phase != v1alpha1.UpgradeUpgrading || s.ID != "2" {
		t.Errorf("status %+v", s)
	}
	u.Closed("a", second)
	u.want(&v1alpha1.Upgrade{ID: "3", Version: "v4", Timeout: "5m"})
	expect("an agent without session", 3)
	if s := u.status("a", second); s != nil {
		t.Errorf("status %+v after the end", s)
	}
}

func TestUpgrades_TextOfAgentIsOneLine(t *testing.T) {
	u := newUpgradeTest(t)
	epoch := engine.Epoch{Incarnation: 1}
	u.Received("a", epoch, engine.UpgradeState{ID: "1", Phase: "<evil>", Message: "a\nb\x1b[2J"})
	if s := u.status("a", epoch); s.Phase != "Other" || s.Message != "a b [2J" {
		t.Errorf("%+v", s)
	}
}

// The status shows what the agent reported in the open session, and keeps it while the agent is disconnected.
func TestStatus_ShowsUpgrade(t *testing.T) {
	upgrading := &v1alpha1.UpgradeStatus{ID: "1", Phase: v1alpha1.UpgradeUpgrading}
	in := look(t, v1alpha1.Status{}, openSession(1))
	in.upgrade = upgrading
	s := in.status()
	if s.Upgrade == nil || *s.Upgrade != *upgrading {
		t.Fatalf("%+v", s.Upgrade)
	}
	ended := openSession(1)
	ended.open = false
	if s = look(t, s, ended).status(); s.Upgrade == nil || *s.Upgrade != *upgrading {
		t.Errorf("disconnected: %+v", s.Upgrade)
	}
	if s = look(t, s, openSession(2)).status(); s.Upgrade == nil || *s.Upgrade != *upgrading {
		t.Errorf("connected again, not reported yet: %+v", s.Upgrade)
	}
	older := openSession(3)
	older.version = "v0"
	if s = look(t, s, older).status(); s.Upgrade != nil || s.Version != "v0" {
		t.Errorf("a release that does not know upgrades: %+v", s.Upgrade)
	}
}

// An agent that reports other upgrades, other phases, or the same phases again and again, is not worth a log line.
func TestUpgrades_EachPhaseIsNewOnce(t *testing.T) {
	u := newUpgradeTest(t)
	u.want(&v1alpha1.Upgrade{ID: "1", Version: "v2", Timeout: "5m"})
	report := func(id, phase string, attempt int) (news int) {
		if u.Received("a", engine.Epoch{Incarnation: 1, Attempt: uint64(attempt)}, engine.UpgradeState{ID: id, Phase: phase}) {
			news++
		}
		return news
	}
	news := 0
	for i := range 100 {
		news += report("1", v1alpha1.UpgradePreparing, i) + report("1", v1alpha1.UpgradeUpgrading, i) + report("1", fmt.Sprint("phase", i), i) + report(fmt.Sprint("id", i), v1alpha1.UpgradeFailed, i) + report("", v1alpha1.UpgradeReady, i)
	}
	if news != 2 {
		t.Errorf("%d lines", news)
	}
	u.want(&v1alpha1.Upgrade{ID: "2", Version: "v3", Timeout: "5m"})
	if report("2", v1alpha1.UpgradePreparing, 100) != 1 {
		t.Error("another upgrade is not new")
	}
	u.Forget("a")
	if report("2", v1alpha1.UpgradePreparing, 100) != 1 {
		t.Error("a new Agent of this name is not new")
	}
	if u.Received("unknown", engine.Epoch{}, engine.UpgradeState{ID: "2", Phase: v1alpha1.UpgradePreparing}) {
		t.Error("an agent without an Agent is new")
	}
}
