package install

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/lab"
)

// imageRuns starts principal and agent from the root file system of the image, as its user. They must work with real API
// servers and report their version. The agent joins with the argocd-agentctl of the release.
func imageRuns(t *testing.T, out string) {
	t.Helper()
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})
	layout := openLayout(t, filepath.Join(out, "argocd-agent-"+releaseVersion+"-image.tar"))
	manifest := layout.manifests(t)[0]
	config := layout.config(t, manifest)
	ctl := filepath.Join(unpack(t, gunzip(t, []byte(read(t, out, "argocd-agentctl-"+releaseVersion+"-linux-"+runtime.GOARCH+".tar.gz"))), func(*tar.Header) {}), "argocd-agentctl")

	listen, metrics, health := port(t, l), port(t, l), port(t, l)
	startImage(t, layout.unpack(t, manifest, func(*tar.Header) {}), config, l.Hub().RunAs.File, "principal",
		"--listen-host", "127.0.0.1", "--listen-port", listen, "--metrics-port", metrics, "--healthz-port", health, "--tls-server-names", "127.0.0.1",
		"--resource-proxy-port", port(t, l), "--redis-proxy-port", "0", "--namespace-create-enable")
	token := joinToken(t, l, ctl, number(t, listen))
	if text, err := l.Command(t.Context(), ctl, "join", token, "--token-only", "--agent-context", "managed").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	startImage(t, layout.unpack(t, manifest, func(*tar.Header) {}), config, l.Cluster("managed").RunAs.File, "agent",
		"--agent-mode", "managed", "--server-address", "127.0.0.1", "--server-port", listen, "--metrics-port", "0", "--healthz-port", "0", "--enable-resource-proxy=false")

	agents := l.Hub().Dynamic().Resource(schema.GroupVersionResource{Group: "argocd-agent.argoproj-labs.io", Version: "v1alpha1", Resource: "agents"}).Namespace(lab.ArgoCDNamespace)
	lab.Await(t, "the version in the Agent", func(ctx context.Context) error {
		agent, err := agents.Get(ctx, "w1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status, _ := agent.Object["status"].(map[string]any); status["version"] != releaseVersion {
			return fmt.Errorf("status %v", status)
		}
		return nil
	})
	lab.Await(t, "the principal's probe", func(ctx context.Context) error {
		_, err := fetch(ctx, "http://127.0.0.1:"+health+"/healthz")
		return err
	})
	text, err := fetch(t.Context(), "http://127.0.0.1:"+metrics+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	commit := config.Config.Labels["org.opencontainers.image.revision"]
	date := config.Config.Labels["org.opencontainers.image.created"]
	if want := fmt.Sprintf("argocd_agent_principal_build_info{commit=%q,date=%q,goversion=%q,version=%q} 1\n", commit, date, runtime.Version(), releaseVersion); !strings.Contains(text, want) {
		t.Errorf("no %s", want)
	}
	var version struct{ Version, Commit, Date string }
	printed, refusal := run(t, ctl, "version", "--client", "-o", "json")
	if err := json.Unmarshal([]byte(printed), &version); err != nil || version.Version != releaseVersion || version.Commit != commit || version.Date != date {
		t.Errorf("argocd-agentctl version: %+v %v %s", version, err, refusal)
	}
}

// startImage runs the entrypoint of an image in its root file system, as its user, until the test ends. Only the kubeconfig
// is added. As another user than root, the test uses a user namespace.
func startImage(t *testing.T, root string, config imageConfig, kubeconfig string, args ...string) {
	t.Helper()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	access, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmdapi.FlattenConfig(access); err != nil { // files of the lab are not in the image
		t.Fatal(err)
	}
	content, err := clientcmd.Write(*access)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "kubeconfig"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	user, group, _ := strings.Cut(config.Config.User, ":")
	uid, gid := number(t, user), number(t, group)
	attributes := &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		attributes.Credential.NoSetGroups = false // drop those of root
	} else {
		attributes.Cloneflags = syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getgid(), Size: 1}}
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	program := config.Config.Entrypoint[0]
	command := &exec.Cmd{
		Path: "/usr/local/bin/" + program, Args: append([]string{program}, append(args, "--kubeconfig", "/kubeconfig", "--namespace", lab.ArgoCDNamespace)...),
		Env: config.Config.Env, Dir: "/", Stdout: log, Stderr: log, SysProcAttr: attributes,
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start %s in %s: %v", program, root, err)
	}
	t.Cleanup(func() {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s %s has ended: %v", program, args[0], err)
		}
		if err := command.Wait(); err != nil {
			t.Errorf("%s %s: %v", program, args[0], err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", args[0], read(t, log.Name()))
		}
		log.Close()
	})
}

func port(t *testing.T, l *lab.Lab) string {
	t.Helper()
	p, err := l.Port(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(p)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fetch returns the body of a successful response.
func fetch(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}
