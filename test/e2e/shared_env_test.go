package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argocd-agent/argocd-agent/lab"
)

// sharedEndpoints has the addresses at which an agent serves the hub's repo-server and Redis.
type sharedEndpoints struct{ repoServer, redis string }

// sharedPassword is the password of an agent's Redis.
const sharedPassword = "of the spoke"

// sharedModeEnv returns an environment with spokes without repo-server and Redis.
func sharedModeEnv(t *testing.T) (*testEnv, map[string]sharedEndpoints) {
	t.Helper()
	open := func() *lab.Lab { return lab.New(t, lab.Options{}) }
	if os.Getenv(lab.DirVariable) != "" { // a developer repeats one test
		open = func() *lab.Lab { return lab.Get(t) }
	}
	l := open()
	w := newEnv(t, setup{lab: l, flags: []string{"--shared-mode-agents", "manag*,autonomous", "--shared-repo-server-address", l.Hub().RepoServer}, agents: []agentSetup{
		{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	endpoints := map[string]sharedEndpoints{}
	for name, a := range w.agents {
		livePermissions(t, a.spoke.Cluster)
		d := sharedEndpoints{"127.0.0.1:" + w.freePort(t), "127.0.0.1:" + w.freePort(t)}
		endpoints[name] = d
		a.args = append(without(a.args, "--redis-addr", "--redis-password"),
			"--shared-repo-server-listen", d.repoServer, "--shared-redis-listen", d.redis, "--shared-redis-password", sharedPassword)
	}
	w.secureHub(t)
	secureSpoke(t, w, w.managed()) // the other agent's controllers use no TLS or no verification
	w.start(t)
	for name, a := range w.agents {
		w.slim(t, a, endpoints[name])
	}
	w.serveArgoCD(t)
	return w, endpoints
}

// secureHub gives the hub's repo-server and Redis certificates, and lets the principal verify them.
func (w *testEnv) secureHub(t testing.TB) {
	t.Helper()
	cert := w.pki.forADay(t, "of-the-hub")
	home := filepath.Dir(w.hub.Kubeconfig)
	giveFile(t, readFile(t, cert.cert), home, "argocd-conf/reposerver/tls/tls.crt")
	giveFile(t, readFile(t, cert.key), home, "argocd-conf/reposerver/tls/tls.key")
	port := w.freePort(t)
	settings := regexp.MustCompile(`(?m)^tls-.*\n`).ReplaceAllString(string(readFile(t, filepath.Join(home, "redis.conf"))), "") // of an earlier run
	settings += fmt.Sprintf("tls-port %s\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\n", port, cert.cert, cert.key, w.pki.file)
	giveFile(t, []byte(settings), home, "redis.conf")
	for _, component := range []string{"hub/redis", "hub/repo-server"} {
		if err := w.Restart(t.Context(), component); err != nil {
			t.Fatal(err)
		}
	}
	w.principal.args = append(without(w.principal.args, "--redis-server-address"), "--shared-repo-server-ca-path", w.pki.file,
		"--redis-server-address", "127.0.0.1:"+port, "--redis-tls-enabled", "--redis-tls-ca-path", w.pki.file)
}

// secureSpoke gives an agent a certificate for the Argo CD controllers. slim lets them verify it.
func secureSpoke(t testing.TB, w *testEnv, a *agent) {
	t.Helper()
	cert := w.pki.forADay(t, "of-the-endpoints")
	giveFile(t, readFile(t, w.pki.file), filepath.Dir(a.spoke.Kubeconfig), "argocd-conf/controller/tls/ca.crt")
	a.args = append(a.args, "--shared-tls-cert", cert.cert, "--shared-tls-key", cert.key)
}

func giveFile(t testing.TB, content []byte, folder, name string) {
	t.Helper()
	file := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// slim removes repo-server and Redis from a spoke, and sets the addresses of its controllers.
func (w *testEnv) slim(t testing.TB, a *agent, d sharedEndpoints) {
	t.Helper()
	cluster := a.spoke.Name + "/"
	for _, component := range []string{"repo-server", "redis"} {
		if err := w.Kill(t.Context(), cluster+component); err != nil && os.Getenv(lab.DirVariable) == "" {
			t.Fatal(err)
		}
	}
	changes := []lab.Change{lab.Flag("--redis", d.redis), lab.Flag("--repo-server", d.repoServer), lab.Env("REDIS_PASSWORD", sharedPassword)}
	if slices.Contains(a.args, "--shared-tls-cert") {
		changes = append(changes, lab.Flag("--repo-server-strict-tls", "true"), lab.Flag("--redis-use-tls", "true"), lab.Flag("--redis-ca-certificate", w.pki.file))
	}
	if err := w.Restart(t.Context(), cluster+"application-controller", changes...); err != nil {
		t.Fatal(err)
	}
	if a.mode != "autonomous" {
		return
	}
	if err := w.Restart(t.Context(), cluster+"applicationset-controller", lab.Flag("--argocd-repo-server", d.repoServer)); err != nil {
		t.Fatal(err)
	}
}

// without removes flags and their values.
func without(args []string, flags ...string) []string {
	var left []string
	for i := 0; i < len(args); i++ {
		if slices.Contains(flags, args[i]) {
			i++
			continue
		}
		left = append(left, args[i])
	}
	return left
}

// redisAt sends requests to a Redis, after AUTH, and returns the first line of each reply, or an error.
func redisAt(address, password string, requests ...[]string) ([]string, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(conn)
	var replies []string
	for i, request := range append([][]string{{"AUTH", password}}, requests...) {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(request))
		for _, arg := range request {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
		}
		if _, err := conn.Write([]byte(b.String())); err != nil {
			return replies, err
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return replies, err
		}
		if i == 0 && !strings.HasPrefix(line, "+OK") {
			return nil, errors.New(line)
		}
		if i > 0 {
			replies = append(replies, strings.TrimSpace(line))
		}
		if strings.HasPrefix(line, "$") && !strings.HasPrefix(line, "$-1") {
			if _, err := in.ReadString('\n'); err != nil {
				return replies, err
			}
		}
	}
	return replies, nil
}

// bytesCodec sends arbitrary bytes to a gRPC server.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// askRepoServer requests the directories of a repository at HEAD, or calls another method with the same request and
// additional fields.
func askRepoServer(t testing.TB, address, method, repository string, more ...[]byte) error {
	t.Helper()
	_, err := answerOfRepoServer(t, address, method, append([][]byte{bytesField(1, textField(1, repository)), textField(3, "HEAD")}, more...)...)
	return err
}

func answerOfRepoServer(t testing.TB, address, method string, parts ...[]byte) (string, error) {
	t.Helper()
	client, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	var answer []byte
	err = client.Invoke(ctx, "/repository.RepoServerService/"+method, slices.Concat(parts...), &answer, grpc.ForceCodecV2(bytesCodec{}), grpc.WaitForReady(true))
	return string(answer), err
}

// bytesField and textField encode fields of a request.
func bytesField(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(parts...))
}

func textField(number protowire.Number, text string) []byte { return bytesField(number, []byte(text)) }
