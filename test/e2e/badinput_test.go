package e2e

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
)

// misconfiguredAgent is a misconfigured agent of the shared environment. It is refused and reports the reason.
func misconfiguredAgent(t *testing.T, w *testEnv, name string, change ...string) *program {
	t.Helper()
	a := w.managed()
	args := append([]string{}, a.args...)
	for i := 0; i+1 < len(change); i += 2 {
		args = replaceFlag(args, change[i], change[i+1])
	}
	args = replaceFlag(args, "--healthz-port", "0")
	p := newProgram(name+"-"+now(), w.logs(), args...)
	t.Cleanup(func() { p.signal(9) })
	p.start(t)
	return p
}

func replaceFlag(args []string, flag, value string) []string {
	for i := range args {
		if args[i] == flag {
			args[i+1] = value
			return args
		}
	}
	if value == "" {
		return append(args, flag)
	}
	return append(args, flag, value)
}

func TestAgent_ReportsAuthenticationFailure(t *testing.T) {
	w := shared(t)
	folder := t.TempDir()
	other := newAuthority(t, folder, "other-ca")
	unknown := other.forADay(t, "managed")
	expired := w.pki.issue(t, "expired", time.Now().Add(-time.Hour))
	badName := w.pki.forADay(t, "Not--A_Name")
	for _, c := range []struct {
		name         string
		change       []string
		agent, there []string // expected log of the agent and of the principal
	}{
		{"certificate of an unknown CA", []string{"--tls-client-cert", unknown.cert, "--tls-client-key", unknown.key},
			[]string{"certificate"}, []string{"TLS handshake failed"}},
		{"expired certificate", []string{"--tls-client-cert", expired.cert, "--tls-client-key", expired.key},
			[]string{"expired"}, nil},
		{"principal of an unknown CA", []string{"--root-ca-path", other.file}, []string{"not signed by a CA"}, nil},
		{"name that is none", []string{"--tls-client-cert", badName.cert, "--tls-client-key", badName.key},
			[]string{"Not--A_Name"}, nil},
		{"mode other than registered", []string{"--agent-mode", "autonomous"}, []string{"registered as managed"}, []string{"Agent refused", "WrongMode"}},
		{"wrong port", []string{"--server-port", "1"}, []string{"refused"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark := w.principal.logOffset(t)
			p := misconfiguredAgent(t, w, strings.ReplaceAll(c.name, " ", "-"), c.change...)
			p.waitForLog(t, 0, c.agent...)
			if c.there != nil {
				w.principal.waitForLog(t, mark, c.there...)
			}
			if code := p.terminate(t); code != 0 && p.err != nil && !strings.Contains(p.logged(t), "argocd-agent:") {
				t.Errorf("it ended with %d and no reason", code)
			}
		})
	}
	w.managed().connected(t)
}

func TestPrincipal_SurvivesGarbageOnPort(t *testing.T) {
	w := shared(t)
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 1<<16), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""} {
		conn, err := net.DialTimeout("tcp", "127.0.0.1:"+w.port, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, garbage)
		_ = conn.Close()
	}
	noCert, err := tls.Dial("tcp", "127.0.0.1:"+w.port, w.pki.client(t, nil))
	if err == nil {
		_ = noCert.SetReadDeadline(time.Now().Add(*patience))
		if _, err = noCert.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("a client without a certificate was accepted: %v", err)
		}
		_ = noCert.Close()
	}
	app := w.hub.app("managed", "after-garbage")
	app.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "x"}.object())
	app.becomes(t, outOfSync)
}

func TestSettings_ContradictionsAreRejectedAtStart(t *testing.T) {
	w := shared(t)
	p := newProgram("contradiction", w.logs(), "principal", "--insecure-plaintext", "--auth", "mtls:CN=([^,]+)")
	p.start(t)
	if code := p.wait(t); code != 2 || !strings.Contains(p.logged(t), "--insecure-plaintext") {
		t.Errorf("it ended with %d: %s", code, p.logged(t))
	}
}

func TestStart_WaitsForCluster(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})
	w := newEnv(t, setup{lab: l, agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}}})
	t.Cleanup(w.close)
	spoke := w.managed().spoke

	t.Run("an unreachable API server", func(t *testing.T) {
		for _, component := range []string{"hub/kube-apiserver", "managed/kube-apiserver"} {
			if err := l.Kill(t.Context(), component); err != nil {
				t.Fatal(err)
			}
		}
		w.principal.start(t)
		w.managed().start(t)
		w.principal.waitForLog(t, 0, "Waiting for the API server")
		w.managed().waitForLog(t, 0, "Waiting for the API server")
		for _, component := range []string{"managed/kube-apiserver", "hub/kube-apiserver"} {
			if component == "hub/kube-apiserver" { // the agent is running and reports what it waits for
				w.managed().waitForLog(t, 0, "the hub is not ready", "waiting for the API server")
			}
			if err := l.Restart(t.Context(), component); err != nil {
				t.Fatal(err)
			}
		}
		w.connected(t)
	})
	t.Run("a kind without read permission is named, and others work", func(t *testing.T) {
		role := spoke.object(unstructuredResource("rbac.authorization.k8s.io", "v1", "roles"), lab.ArgoCDNamespace, "argocd-agent-agent")
		before := role.get(t)
		rules, kept := before.Object["rules"].([]any), []any{}
		for _, rule := range rules {
			if resources := rule.(map[string]any)["resources"].([]any); resources[0] != "configmaps" {
				kept = append(kept, rule)
			}
		}
		replaceRules(t, role, kept)
		mark := w.managed().logOffset(t)
		w.managed().restart(t)
		w.managed().waitForLog(t, mark, "Failed to read objects", "configmaps", "forbidden")
		w.hub.app("managed", "rest").create(t, simple("managed"))
		spoke.app(lab.ArgoCDNamespace, "rest").becomes(t)
		await(t, "the probe to name what cannot be read", func() error {
			if err := healthy(w.managed().health); err == nil || !strings.Contains(err.Error(), "configmaps") {
				return os.ErrInvalid
			}
			return nil
		})
		replaceRules(t, role, rules)
		w.hub.configMap("argocd-gpg-keys-cm").patch(t, `{"data":{"AAAA":"one"}}`)
		spoke.configMap("argocd-gpg-keys-cm").becomes(t, field("data.AAAA", "one"))
		w.managed().connected(t)
	})
	t.Run("a namespace that is missing on the hub is named", func(t *testing.T) {
		auto := w.addAgent(t, agentSetup{name: "nowhere", cluster: "managed", mode: "autonomous"})
		w.managed().kill(t)
		w.hub.object(namespaces, "", "nowhere").delete(t)
		w.hub.object(namespaces, "", "nowhere").goes(t)
		mark := w.principal.logOffset(t)
		auto.start(t)
		spoke.app(lab.ArgoCDNamespace, "homeless").create(t, simple("in-cluster"))
		w.principal.waitForLog(t, mark, "nowhere", "not found")
		w.hub.ensureNamespace(t, "nowhere")
		w.hub.app("nowhere", "homeless").becomes(t)
		auto.kill(t)
	})
	t.Run("missing CRDs are named", func(t *testing.T) {
		crd := spoke.object(unstructuredResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", "appprojects.argoproj.io")
		crd.delete(t)
		crd.goes(t)
		mark := w.managed().logOffset(t)
		w.managed().start(t)
		w.managed().waitForLog(t, mark, "CRD installed")
		w.managed().kill(t)
	})
}

func replaceRules(t *testing.T, role object, rules []any) {
	t.Helper()
	u := role.get(t)
	u.Object["rules"] = rules
	ctx, cancel := call()
	defer cancel()
	if _, err := role.in().Update(ctx, u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
