package sharedmode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	ours   = "https://git.example.com/ours/app.git"
	theirs = "https://git.example.com/theirs/app.git"
)

// field is a message of one field.
func field(number protowire.Number, value ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), bytes.Join(value, nil))
}

func words(number protowire.Number, s string) []byte { return field(number, []byte(s)) }

func number(field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n)
}

func repository(address string, more ...[]byte) []byte {
	return append(words(repositoryURL, address), bytes.Join(more, nil)...)
}

// noKustomize is said in requests for manifests where kustomize is off, as it is on this hub.
var noKustomize = field(20, words(1, "Kustomize"))

// hub is a RepoServer in front of one that notes what it is asked.
type hub struct {
	*RepoServer
	t *testing.T

	mu    sync.Mutex
	asked [][]byte
	hold  chan struct{} // nil: answers at once
}

func serve(t *testing.T, cfg RepoConfig) *hub {
	t.Helper()
	h := &hub{t: t}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	backend := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var request message
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		h.mu.Lock()
		h.asked = append(h.asked, request)
		hold := h.hold
		h.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-stream.Context().Done():
			}
		}
		if bytes.Contains(request, []byte("fail")) {
			return status.Error(codes.NotFound, "no such path")
		}
		if name, _ := grpc.MethodFromServerStream(stream); strings.HasSuffix(name, "/GenerateManifest") && isTrue(request, path{manifestSeveral}) {
			return stream.SendMsg(message(words(manifestAnswerRevision, "looked-at")))
		}
		return stream.SendMsg(message("manifests"))
	}))
	go func() { _ = backend.Serve(l) }()
	cfg.Address = l.Addr().String()
	cfg.Rules = func(_ context.Context, agent string) (*Rules, error) {
		if agent == "w9" {
			return nil, errors.New("agent w9 may not use the hub's repo-server")
		}
		return &Rules{
			Repository: func(address string) error {
				if !strings.Contains(address, "/ours/") {
					return fmt.Errorf("repository %s is not of a project that is placed on agent %s", address, agent)
				}
				return nil
			},
			Same:       func(a, b string) bool { return strings.TrimSuffix(a, ".git") == strings.TrimSuffix(b, ".git") },
			Proxies:    map[string]bool{"http://proxy": true},
			GitHubAPIs: map[string]bool{"https://github.corp/api/v3": true}, GoogleKeys: map[string]bool{`{"token_uri":"https://tokens"}`: true},
			NoProxies: map[string]bool{".corp": true}, AzureIdentity: agent == "azure", Insecure: agent == "azure",
			SourceTypesOff: map[string]string{"Kustomize": "kustomize.enable"},
			Application: func(_ context.Context, name string) (map[string]bool, error) {
				if name == "broken" {
					return nil, errors.New("the hub is not ready")
				}
				return map[string]bool{"https://values.example.com/$ARGOCD_APP_NAME.yaml": name == "web", "vault": name == "web", "path": name == "web", "importstr 'x'": name == "web"}, nil
			},
			BuildOptions: map[string]bool{"--enable-helm": true},
			Programs:     map[string]bool{"/bin/kustomize5": true}, ValuesSchemes: map[string]bool{"https": true},
		}, nil
	}
	h.RepoServer = NewRepoServer(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		backend.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return h
}

// as is a client behind an agent.
func (h *hub) as(agent string) *grpc.ClientConn {
	h.t.Helper()
	client, err := grpc.NewClient("passthrough:///hub", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallSendMsgSize(1<<30)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go h.Serve(h.t.Context(), agent, far)
			return near, nil
		}))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (h *hub) ask(agent, name string, parts ...[]byte) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	defer cancel()
	var response message
	err := h.as(agent).Invoke(ctx, service+name, message(bytes.Join(parts, nil)), &response)
	return string(response), err
}

func TestRules_PermittedRepositories(t *testing.T) {
	h := serve(t, RepoConfig{})
	ref := field(23, words(1, "$values"), field(2, field(1, repository(ours))))
	for name, request := range map[string][][]byte{
		"GenerateManifest": {field(1, repository(ours, words(2, "user"), words(3, "password"))), words(2, "HEAD"), field(10, words(1, ours)), ref,
			field(11, repository(ours, words(12, "charts"))), noKustomize, words(5, "web"), words(8, "team-a"), words(25, "default"),
			field(10, words(12, "chart"), field(7, words(1, "values-$ARGOCD_APP_NAME.yaml"), words(1, "$values/x.yaml"), words(1, "https://values.example.com/$ARGOCD_APP_NAME.yaml"), field(5, words(1, "a.b"), words(2, "file"))),
				field(8, words(13, "../components/x"), field(12, words(1, "patch.yaml"))), field(11, words(1, "vault"), field(2, words(1, "path"), words(2, "vault"))),
				field(10, field(2, field(1, words(1, "a"), words(2, "plain")), field(2, words(1, "b"), words(2, "importstr 'x'"), number(3, 1))))),
			field(17, words(1, ours)), field(13, words(1, "--enable-helm"), field(3, words(1, "v5"), words(2, "/bin/kustomize5"))), words(4, "app"), words(19, "annotation")},
		"GetGitFiles":            {field(1, repository(ours, words(19, "http://proxy"), words(23, ".corp"), words(18, "https://github.corp/api/v3"), words(21, `{"token_uri":"https://tokens"}`+"\n"), number(24, 0)))},
		"GetGitDirectories":      {field(1, repository(ours))},
		"ResolveRevision":        {field(1, repository(ours))},
		"UpdateRevisionForPaths": {field(1, repository(ours)), field(5, words(1, strings.TrimSuffix(ours, ".git"))), words(2, "app")},
	} {
		if got, err := h.ask("w1", name, request...); err != nil || got != "manifests" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		asked := h.asked[len(h.asked)-1]
		if !bytes.HasPrefix(asked, bytes.Join(request, nil)) {
			t.Errorf("%s: the repo-server gets %q", name, asked)
		}
	}
	if _, err := h.ask("azure", "GetGitFiles", field(1, repository(ours, number(24, 1), number(7, 1), number(6, 1), number(26, 1)))); err != nil {
		t.Error(err)
	}
	if _, err := h.ask("w1", "GetGitFiles", field(1, repository(ours)), words(4, "fail")); status.Code(err) != codes.NotFound || status.Convert(err).Message() != "no such path" {
		t.Errorf("an error of the repo-server: %v", err)
	}
}

func TestRules_DenyEverythingElse(t *testing.T) {
	h := serve(t, RepoConfig{Request: 1 << 20})
	own := field(1, repository(ours))
	source := append(field(10, words(1, ours)), noKustomize...)
	for name, c := range map[string]struct {
		agent, method, want string
		request             [][]byte
	}{
		"another's repository": {"w1", "GenerateManifest", "repository " + theirs + " is not of a project that is placed on agent w1", [][]byte{field(1, repository(theirs))}},
		"one of two":           {"w1", "GenerateManifest", "theirs", [][]byte{own, field(1, repository(theirs)), source}},
		"one within the other": {"w1", "GenerateManifest", "theirs", [][]byte{field(1, repository(ours), repository(theirs)), source}},
		"a reference":          {"w1", "GenerateManifest", "theirs", [][]byte{own, source, field(23, words(1, "x"), field(2, field(1, repository(theirs))))}},
		"a Helm repository":    {"w1", "GenerateManifest", "theirs", [][]byte{own, source, field(11, repository(ours)), field(11, repository(theirs))}},
		"Helm credentials":     {"w1", "GenerateManifest", "theirs", [][]byte{own, source, field(17, words(1, theirs))}},
		"another source":       {"w1", "GenerateManifest", "is not of the repository", [][]byte{own, noKustomize, field(10, words(1, theirs))}},
		"another source later": {"w1", "UpdateRevisionForPaths", "is not of the repository", [][]byte{own, field(5, words(1, ours)), field(5, words(1, theirs))}},
		"a reference to be compared": {"w1", "UpdateRevisionForPaths", "theirs",
			[][]byte{own, field(5, words(1, ours)), field(7, words(1, "x"), field(2, field(1, repository(theirs))))}},
		"no repository":        {"w1", "GenerateManifest", "names no repository", [][]byte{noKustomize}},
		"no address":           {"w1", "GetGitFiles", "names no repository", [][]byte{field(1, words(2, "x"))}},
		"an empty address":     {"w1", "GetGitFiles", "has no address", [][]byte{field(1, repository(""))}},
		"a file":               {"w1", "GetGitFiles", `addresses of "file"`, [][]byte{field(1, repository("file:///tmp/ours/x"))}},
		"a file, loud":         {"w1", "GetGitFiles", `addresses of "file"`, [][]byte{field(1, repository(" FILE:///tmp/ours/x"))}},
		"a path":               {"w1", "GetGitFiles", "this kind of address", [][]byte{field(1, repository("/tmp/ours/x"))}},
		"a program":            {"w1", "GetGitFiles", "this kind of address", [][]byte{field(1, repository("ext::sh -c /ours/"))}},
		"a proxy":              {"w1", "GetGitFiles", `proxy "http://evil" is not a setting of a repository`, [][]byte{field(1, repository(ours, words(19, "http://evil")))}},
		"a proxy of Helm's":    {"w1", "GenerateManifest", `proxy "http://evil"`, [][]byte{own, source, field(11, repository(ours, words(19, "http://evil")))}},
		"a proxy of templates": {"w1", "GenerateManifest", `proxy "http://evil"`, [][]byte{own, source, field(17, repository(ours, words(19, "http://evil")))}},
		"GitHub's API":         {"w1", "GetGitFiles", `githubAppEnterpriseBaseUrl "http://evil" is not a setting of a repository`, [][]byte{field(1, repository(ours, words(18, "http://evil")))}},
		"that of templates":    {"w1", "GenerateManifest", `githubAppEnterpriseBaseUrl "http://evil"`, [][]byte{own, source, field(17, repository(ours, words(10, "http://evil")))}},
		"that of a reference":  {"w1", "GenerateManifest", `githubAppEnterpriseBaseUrl "http://evil"`, [][]byte{own, source, field(23, words(1, "x"), field(2, field(1, repository(ours, words(18, "http://evil")))))}},
		"Google's tokens":      {"w1", "GetGitFiles", "desc = this gcpServiceAccountKey is not a setting of", [][]byte{field(1, repository(ours, words(21, `{"token_uri":"http://evil"}`)))}},
		"those of templates":   {"w1", "GenerateManifest", "this gcpServiceAccountKey is not a setting of", [][]byte{own, source, field(17, repository(ours, words(13, `{"token_uri":"http://evil"}`)))}},
		"the hub's identity":   {"w1", "GetGitFiles", "useAzureWorkloadIdentity is not a setting of", [][]byte{field(1, repository(ours, number(24, 0), number(24, 1)))}},
		"it, long":             {"w1", "GetGitFiles", "useAzureWorkloadIdentity is not a setting of", [][]byte{field(1, repository(ours, number(24, 128)))}},
		"it, of templates":     {"w1", "GenerateManifest", "useAzureWorkloadIdentity is not a setting of", [][]byte{own, source, field(17, repository(ours, number(24, 1)))}},
		"build options":        {"w1", "GenerateManifest", `kustomize.buildOptions "--enable-exec" is not a setting of the hub's argocd-cm`, [][]byte{own, source, field(13, words(1, "--enable-exec"))}},
		"options of a version": {"w1", "GenerateManifest", "kustomize.buildOptions", [][]byte{own, source, field(13, field(3, words(3, "--enable-exec")))}},
		"a binary":             {"w1", "GenerateManifest", "field 13 of the request", [][]byte{own, source, field(13, words(2, "/bin/sh"))}},
		"a version's binary":   {"w1", "GenerateManifest", `kustomize.version "/bin/sh"`, [][]byte{own, source, field(13, field(3, words(2, "/bin/sh")))}},
		"a plugin":             {"w1", "GenerateManifest", "field 12 of the request", [][]byte{own, source, field(12, words(1, "x"))}},
		"a scheme":             {"w1", "GenerateManifest", `helm.valuesFileSchemes "file"`, [][]byte{own, source, field(21, words(1, "file"))}},
		"no source":            {"w1", "GenerateManifest", "names no source", [][]byte{own, noKustomize}},
		"a program's option":   {"w1", "GetGitFiles", "has no address", [][]byte{field(1, repository(" --upload-pack=x/ours/"))}},
		"without the proxy":    {"w1", "GetGitFiles", `noProxy "*" is not a setting of`, [][]byte{field(1, repository(ours, words(19, "http://proxy"), words(23, "*")))}},
		"unverified server":    {"w1", "GetGitFiles", "access that is not verified (insecure) is not a setting of", [][]byte{field(1, repository(ours, number(7, 1)))}},
		"whatever host key":    {"w1", "ResolveRevision", "(insecure)", [][]byte{field(1, repository(ours, number(6, 1)))}},
		"OCI without TLS":      {"w1", "GenerateManifest", "(insecure)", [][]byte{own, source, field(17, repository(ours, number(26, 1)))}},
		"an option of Helm's":  {"w1", "GenerateManifest", "neither a chart nor a repository", [][]byte{own, source, field(11, repository(ours, words(12, "--repository-config=/x")))}},
		"a chart as option":    {"w1", "GenerateManifest", "neither a chart", [][]byte{own, source, field(10, words(12, "--untardir=/"))}},
		"a chart elsewhere":    {"w1", "GetRevisionChartDetails", "neither a chart", [][]byte{own, words(2, "../../other/chart")}},
		"what is switched off": {"w1", "GenerateManifest", "kustomize.enable is false in the hub's argocd-cm", [][]byte{own, field(10, words(1, ours))}},
		"it, said twice":       {"w1", "GenerateManifest", "kustomize.enable", [][]byte{own, source, field(20, words(1, "Kustomize"), number(2, 1))}},
		"details":              {"w1", "GetAppDetails", "not among the methods", [][]byte{own}},
		"tracking":             {"w1", "GenerateManifest", `tracking method "x|y"`, [][]byte{own, source, words(19, "x|y")}},
		"content of its own":   {"w1", "GenerateManifestWithFiles", "not among the methods", [][]byte{own}},
		"a test of secrets":    {"w1", "TestRepository", "not among the methods", [][]byte{own}},
		"another service":      {"w1", "../../grpc.health.v1.Health/Check", "", [][]byte{own}},
		"nonsense":             {"w1", "GenerateManifest", "the request is not valid", [][]byte{own, {0xff, 0xff, 0xff}}},
		"nonsense within":      {"w1", "GenerateManifest", "the request is not valid", [][]byte{field(1, repository(ours), []byte{0x0a, 0x70})}},
		"a large request":      {"w1", "GetGitFiles", "larger than max", [][]byte{own, field(99, make([]byte, 1<<20))}},
		"not an agent's":       {"w9", "GetGitFiles", "agent w9 may not", [][]byte{own}},
	} {
		got, err := h.ask(c.agent, c.method, c.request...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		switch status.Code(err) {
		case codes.PermissionDenied, codes.InvalidArgument, codes.ResourceExhausted:
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(h.asked) > 0 {
		t.Errorf("the repo-server was asked %q", h.asked)
	}
	if h.Denied.Load() == 0 {
		t.Error("not counted")
	}
}

func TestRepoServer_SeparatesCacheKeys(t *testing.T) {
	h := serve(t, RepoConfig{})
	own, source := field(1, repository(ours)), append(field(10, words(1, ours)), noKustomize...)
	for _, c := range []struct{ tracking, label, installation, wantLabel, wantInstallation string }{
		{"", "app", "", "app@w1", ""},
		{"annotation", "app@w2", "", "app@w2@w1", ""},
		{"label", "app", "", "app", "@w1"},
		{"label", "app", "x", "app", "x@w1"},
	} {
		if _, err := h.ask("w1", "GenerateManifest", own, source, words(19, c.tracking), words(4, c.label), words(27, c.installation)); err != nil {
			t.Fatal(err)
		}
		asked := h.asked[len(h.asked)-1]
		if got := last(asked, path{4}); got != c.wantLabel {
			t.Errorf("%+v: label %q", c, got)
		}
		if got := last(asked, path{27}); got != c.wantInstallation {
			t.Errorf("%+v: installation %q", c, got)
		}
	}
	// Where every part of the key means something, the cache is not used.
	for _, parts := range [][]byte{words(19, "annotation+label"), nil} {
		if _, err := h.ask("w1", "GenerateManifest", own, source, parts); err != nil {
			t.Fatal(err)
		}
		if asked := h.asked[len(h.asked)-1]; !bytes.HasSuffix(asked, []byte{3 << 3, 1}) {
			t.Errorf("the repo-server gets %q", asked)
		}
	}
	before := len(h.asked)
	got, err := h.ask("w1", "UpdateRevisionForPaths", own, field(5, words(1, ours)), words(6, "annotation+label"), words(2, "app"))
	if err != nil || got != "\x08\x01" || len(h.asked) != before { // changes: true
		t.Errorf("%q, %v", got, err)
	}
}

func TestRepoServer_LimitsRequestsPerAgent(t *testing.T) {
	h := serve(t, RepoConfig{PerAgent: 2})
	hold := make(chan struct{})
	h.hold = hold
	answers := make(chan error, 10)
	client := h.as("w1")
	for range 5 {
		go func() {
			var response message
			answers <- client.Invoke(t.Context(), service+"GetGitDirectories", message(field(1, repository(ours))), &response)
		}()
	}
	count := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.asked)
	}
	await(t, "two are under way", func() bool { return count() == 2 })
	h.mu.Lock()
	h.hold = nil
	h.mu.Unlock()
	if _, err := h.ask("w2", "GetGitDirectories", field(1, repository(ours))); err != nil { // does not wait
		t.Error(err)
	}
	if n := count(); n != 3 {
		t.Errorf("%d are under way", n)
	}
	close(hold)
	for range 5 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	await(t, "nothing is left", func() bool {
		h.RepoServer.mu.Lock()
		defer h.RepoServer.mu.Unlock()
		return len(h.slots) == 0
	})
}

func TestRepoServer_SilentAgentUsesNoSlot(t *testing.T) {
	h := serve(t, RepoConfig{PerAgent: 2, Total: 2})
	client := h.as("w1")
	for range 2 {
		if _, err := client.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, service+"GetGitDirectories"); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "both are there", func() bool { return h.Requests.Load() == 2 })
	if _, err := h.ask("w2", "GetGitDirectories", field(1, repository(ours))); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("does not come true: %s", what)
		}
	}
}
