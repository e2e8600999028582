package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/lab"
)

// buildCLI builds the CLI once for all tests.
var buildCLI = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "argocd-agentctl-e2e-")
	if err != nil {
		return "", err
	}
	atExit(func() { _ = os.RemoveAll(folder) })
	file := filepath.Join(folder, "argocd-agentctl")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", file, "github.com/argocd-agent/argocd-agent/cmd/argocd-agentctl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build argocd-agentctl: %w: %s", err, out)
	}
	return file, nil
})

// ctl runs the CLI as administrator of a cluster and returns its output.
func (s *clusterClient) ctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := s.tryCtl(t, args...)
	if err != nil {
		t.Fatalf("argocd-agentctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// tryCtl is ctl. If the command fails, the output includes the error.
func (s *clusterClient) tryCtl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	file, err := buildCLI()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + s.Kubeconfig,
		"ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + lab.ArgoCDNamespace, "ARGOCD_AGENT_AGENT_NAMESPACE=" + lab.ArgoCDNamespace}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out) + stderr.String(), err
	}
	return strings.TrimSpace(string(out)), nil
}

// joinEnv is a hub with a principal and without certificates, and an empty cluster.
func joinEnv(t *testing.T) (w *testEnv, a *agent) {
	t.Helper()
	w = newEnv(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})})
	t.Cleanup(w.close)
	w.principal.args = onlySecrets(w.principal.args)
	w.principal.start(t)
	await(t, "the principal to have made its certificates", func() error { return healthy(w.health) })
	a = w.addAgent(t, agentSetup{name: "w1", cluster: "managed", mode: "managed"})
	a.args = onlySecrets(a.args)
	return w, a
}

// onlySecrets removes the flags for certificates from files.
func onlySecrets(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--tls-cert", "--tls-key", "--root-ca-path", "--tls-client-cert", "--tls-client-key", "--resource-proxy-cert-path",
			"--resource-proxy-key-path", "--resource-proxy-ca-path", "--self-registration-client-cert-secret":
			i++
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// token creates a join token on the hub, with the address of the agent's link.
func (w *testEnv) token(t testing.TB, a *agent, args ...string) string {
	t.Helper()
	return w.hub.ctl(t, append([]string{"agent", "join-token", "w1", "--mode", "managed", "--address", a.link.Addr(), "-o", "name"}, args...)...)
}

// give stores a join token in the cluster of the agent.
func (a *agent) give(t testing.TB, line string) {
	t.Helper()
	a.spoke.secret("argocd-agent-join").create(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"token": line}})
}

func leafOf(t testing.TB, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("there is no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func fingerprintOf(cert *x509.Certificate) string { return fmt.Sprintf("%X", sha256.Sum256(cert.Raw)) }

func secretData(t testing.TB, u *unstructured.Unstructured, key string) []byte {
	t.Helper()
	text, _, _ := unstructured.NestedString(u.Object, "data", key)
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAgentCertificate_JoinRenewRevoke follows a certificate from an empty hub and cluster to its revocation.
func TestAgentCertificate_JoinRenewRevoke(t *testing.T) {
	t.Parallel()
	w, a := joinEnv(t)
	for _, step := range []struct {
		title string
		run   func(*testing.T, *testEnv, *agent)
	}{
		{"a cluster joins by one line", clusterJoins},
		{"the CA is replaced without losing a session", authorityIsReplaced},
		{"a cloned key suspends the agent until it joins again", cloneSuspends},
		{"revocation takes effect on live connections", revocationCuts},
		{"an agent that is deleted stays away, whatever certificate it has", deletedStaysAway},
		{"the CA key is outside the hub", caKeyOutside},
	} {
		if !t.Run(step.title, func(t *testing.T) { step.run(t, w, a) }) {
			return
		}
	}
}

func clusterJoins(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	line := w.token(t, a, "--label", "env=prod")
	began := time.Now()
	a.give(t, line)
	a.start(t)
	a.connected(t)
	t.Logf("from the line to being connected: %s", time.Since(began).Round(time.Millisecond))

	t.Run("the Agent has the options of the token", func(t *testing.T) {
		w.hub.agent("w1").becomes(t, func(u *unstructured.Unstructured) error {
			mode, _, _ := unstructured.NestedString(u.Object, "spec", "mode")
			label, _, _ := unstructured.NestedString(u.Object, "spec", "cluster", "labels", "env")
			if mode != "managed" || label != "prod" {
				return fmt.Errorf("mode %q, label %q", mode, label)
			}
			return nil
		})
	})
	t.Run("Argo CD has its own certificate for the cluster", func(t *testing.T) {
		secret := w.hub.secret("cluster-w1").becomes(t, func(u *unstructured.Unstructured) error {
			if u.GetLabels()["env"] != "prod" || len(secretData(t, u, "config")) < 100 {
				return errors.New("it lacks the label or the credentials")
			}
			return nil
		})
		var config struct {
			TLSClientConfig struct{ CertData, KeyData, CaData []byte }
		}
		if err := json.Unmarshal(secretData(t, secret, "config"), &config); err != nil {
			t.Fatal(err)
		}
		if leaf := leafOf(t, config.TLSClientConfig.CertData); leaf.Subject.CommonName != "w1" {
			t.Errorf("it is for %s", leaf.Subject)
		}
	})
	t.Run("a token is valid once", func(t *testing.T) {
		a.spoke.secret("argocd-agent-join").goes(t)
		a.kill(t)
		a.spoke.secret("argocd-agent-client-tls").delete(t)
		a.give(t, line)
		mark := a.logOffset(t)
		a.start(t)
		a.waitForLog(t, mark, "join the hub", "this join token was used at", "join-token w1")
		// A new token lets the cluster join again without a restart.
		a.spoke.secret("argocd-agent-join").patch(t, fmt.Sprintf(`{"data":{"tls.key":null},"stringData":{"token":%q}}`, w.token(t, a)))
		a.connected(t)
	})
}

// lostSessions returns the number of ended sessions of the agent according to both sides.
func lostSessions(t testing.TB, w *testEnv, a *agent, hubMark, agentMark int) int {
	t.Helper()
	return strings.Count(w.principal.logged(t)[hubMark:], "Agent disconnected") + strings.Count(a.logged(t)[agentMark:], "Disconnected from the hub")
}

// renews waits until the agent has a certificate of another CA.
func (a *agent) renews(t *testing.T, old *x509.Certificate) *x509.Certificate {
	t.Helper()
	var now *x509.Certificate
	a.spoke.secret("argocd-agent-client-tls").becomes(t, func(u *unstructured.Unstructured) error {
		if now = leafOf(t, secretData(t, u, "tls.crt")); now.Issuer.String() == old.Issuer.String() {
			return fmt.Errorf("it is still the one of %s", old.Issuer)
		}
		return nil
	})
	return now
}

func authorityIsReplaced(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	client := a.spoke.secret("argocd-agent-client-tls")
	before := leafOf(t, secretData(t, client.get(t), "tls.crt"))
	hubMark, agentMark := w.principal.logOffset(t), a.logOffset(t)

	began := time.Now()
	w.hub.ctl(t, "pki", "rotate")
	after := a.renews(t, before)
	t.Logf("from the rotation to a certificate of the new CA on the cluster: %s", time.Since(began).Round(time.Millisecond))
	w.hub.secret("argocd-agent-principal-tls").becomes(t, func(u *unstructured.Unstructured) error {
		if issuer := leafOf(t, secretData(t, u, "tls.crt")).Issuer.String(); issuer != after.Issuer.String() {
			return fmt.Errorf("it is of %s", issuer)
		}
		return nil
	})
	if n := lostSessions(t, w, a, hubMark, agentMark); n != 0 {
		t.Errorf("%d sessions were lost", n)
	}
	if after.Subject.CommonName != "w1" || !after.NotAfter.After(time.Now()) {
		t.Errorf("%s until %s", after.Subject, after.NotAfter)
	}

	// The next certificate trusts the new CA during the rotation and afterwards.
	for _, step := range []string{"during", "after"} {
		if step == "after" {
			w.hub.ctl(t, "pki", "rotate", "--finish", "--force", "--yes")
			a.spoke.secret("argocd-agent-ca").becomes(t, func(u *unstructured.Unstructured) error {
				if n := strings.Count(string(secretData(t, u, "ca.crt")), "BEGIN"); n != 1 {
					return fmt.Errorf("%d CAs are trusted", n)
				}
				return nil
			})
		}
		mark := w.principal.logOffset(t)
		a.link.Reset()
		w.principal.waitForLog(t, mark, "Agent disconnected")
		w.principal.waitForLog(t, mark, "Agent connected")
		a.connected(t)
		t.Logf("connects %s the overlap", step)
	}
}

// renewAs requests a certificate with another one and a new key, as a thief does.
func (w *testEnv) renewAs(t *testing.T, client *unstructured.Unstructured) error {
	t.Helper()
	cert, err := tls.X509KeyPair(secretData(t, client, "tls.crt"), secretData(t, client, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secretData(t, w.hub.secret("argocd-agent-ca").get(t), "ca.crt"))
	conn, err := grpc.NewClient("127.0.0.1:"+w.port, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{cert}})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "w1"}}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := pb.NewEnrollClient(conn).Renew(t.Context(), &pb.RenewRequest{ClockMillis: time.Now().UnixMilli(), KeyStored: true,
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func cloneSuspends(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	client := a.spoke.secret("argocd-agent-client-tls")
	stolen := client.get(t)
	old := leafOf(t, secretData(t, stolen, "tls.crt"))
	w.hub.ctl(t, "pki", "rotate")
	next := a.renews(t, old)
	w.principal.restart(t) // the record survives
	await(t, "the principal to be ready", func() error { return healthy(w.health) })
	a.connected(t)
	if err := w.renewAs(t, stolen); err == nil || !strings.Contains(err.Error(), "two clients have its key") {
		t.Errorf("the stolen certificate was renewed: %v", err)
	}
	a.disconnected(t)
	w.hub.agent("w1").becomes(t, agentShows("Connected", "False", "join-token w1"))
	out, err := w.onHub(t, "", "get", "events", "--field-selector", "involvedObject.name=w1,reason=CertificateReused", "-o", "name")
	if err != nil || strings.Count(out, "event/") != 1 {
		t.Errorf("%v: %q", err, out)
	}
	if err := w.renewAs(t, client.get(t)); err == nil {
		t.Error("a suspended agent can renew")
	}
	a.kill(t)
	client.delete(t)
	a.give(t, w.token(t, a))
	a.start(t)
	a.connected(t)
	w.hub.agent("w1").becomes(t, agentShows("Connected", "True", ""))
	list := w.hub.configMap("argocd-agent-tls-blocklist").get(t)
	for _, cert := range []*x509.Certificate{old, next} {
		if at(list, "data."+fingerprintOf(cert)) == "" {
			t.Errorf("the certificate of %s is not revoked", cert.NotBefore)
		}
	}
	w.hub.ctl(t, "pki", "rotate", "--finish", "--force", "--yes")
}

func revocationCuts(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	cut := func(what string, do func()) {
		t.Helper()
		mark := w.principal.logOffset(t)
		began := time.Now()
		do()
		w.principal.waitForLog(t, mark, "Agent disconnected")
		t.Logf("%s: cut after %s", what, time.Since(began).Round(time.Millisecond))
		a.disconnected(t)
	}
	cut("suspended", func() { w.hub.agent("w1").patch(t, `{"spec":{"suspended":true}}`) })
	w.hub.agent("w1").patch(t, `{"spec":{"suspended":false}}`)
	a.connected(t)

	leaf := leafOf(t, secretData(t, a.spoke.secret("argocd-agent-client-tls").get(t), "tls.crt"))
	cut("revoked", func() { w.hub.ctl(t, "blocklist", "tls", "add", fingerprintOf(leaf)) })
	mark := w.principal.logOffset(t)
	w.principal.waitForLog(t, mark, "TLS handshake failed", "is revoked")
	w.hub.ctl(t, "blocklist", "tls", "remove", fingerprintOf(leaf))
	a.connected(t)
}

func deletedStaysAway(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	// The session still uses the old certificate.
	old := leafOf(t, secretData(t, a.spoke.secret("argocd-agent-client-tls").get(t), "tls.crt"))
	w.hub.ctl(t, "pki", "rotate")
	next := a.renews(t, old)
	mark := w.principal.logOffset(t)
	w.hub.agent("w1").delete(t)
	a.disconnected(t)
	w.hub.agent("w1").goes(t)
	w.principal.waitForLog(t, mark, "TLS handshake failed", "is revoked", fingerprintOf(next))
	w.hub.agent("w1").isAbsent(t)
	// After a new join token the agent can connect again.
	a.kill(t)
	a.spoke.secret("argocd-agent-client-tls").delete(t)
	a.give(t, w.token(t, a))
	a.start(t)
	a.connected(t)
}

// caKeyOutside replaces the CA of the principal by an external signer that writes Secrets, as cert-manager does. The hub
// has no CA key, and the principal changes none of these Secrets.
func caKeyOutside(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	a.kill(t)
	w.principal.kill(t)
	for _, name := range []string{"argocd-agent-ca", "argocd-agent-principal-tls", "argocd-agent-resource-proxy-tls"} {
		w.hub.secret(name).delete(t)
	}
	for _, name := range []string{"argocd-agent-ca", "argocd-agent-client-tls"} {
		a.spoke.secret(name).delete(t)
	}
	signer := newAuthority(t, t.TempDir(), "company-ca")
	ca := map[string]any{"ca.crt": string(readFile(t, signer.file))}
	issue := func(name string) map[string]any {
		pair := signer.forADay(t, name)
		return map[string]any{"tls.crt": string(readFile(t, pair.cert)), "tls.key": string(readFile(t, pair.key))}
	}
	put := func(o object, data map[string]any) *unstructured.Unstructured {
		return o.create(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": data,
			"metadata": map[string]any{"annotations": map[string]any{"cert-manager.io/certificate-name": o.name}}})
	}
	written := map[string]string{}
	for name, data := range map[string]map[string]any{"argocd-agent-ca": ca, "argocd-agent-principal-tls": issue("principal"), "argocd-agent-resource-proxy-tls": issue("resource-proxy")} {
		written[name] = put(w.hub.secret(name), data).GetResourceVersion()
	}
	put(a.spoke.secret("argocd-agent-ca"), ca)
	client := a.spoke.secret("argocd-agent-client-tls")
	put(client, issue("w1"))
	w.principal.start(t)
	a.start(t)
	a.connected(t)

	t.Run("the signer renews the certificate of the agent", func(t *testing.T) {
		next := issue("w1")
		leaf := leafOf(t, []byte(next["tls.crt"].(string)))
		client.edit(t, func(u *unstructured.Unstructured) { set(u, "stringData", next) })
		await(t, "the agent to connect with it", func() error {
			u := w.hub.agent("w1").get(t)
			if at(u, "status.certificate.fingerprint") == fingerprintOf(leaf) {
				return nil
			}
			if truth("status.connected", true)(u) == nil {
				a.link.Reset() // the next connection uses it
			}
			return errors.New("it has the old one")
		})
	})
	for name, version := range written {
		if now := w.hub.secret(name).get(t); now.GetResourceVersion() != version {
			t.Errorf("Secret %s was changed: %v", name, now.GetManagedFields())
		}
	}
	if data, _, _ := unstructured.NestedMap(w.hub.secret("argocd-agent-ca").get(t).Object, "data"); len(data) != 1 {
		t.Errorf("the Secret of the CA has %d keys", len(data))
	}
}
