package product

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// SecondHub is the name of the cluster of the second hub. The lab needs it in lab.Options.Hubs.
const SecondHub = "second"

// hubAccount is the ServiceAccount of the principals of two hubs. Its permissions are those of the chart.
const hubAccount = "drill-principal"

// Hubs is a second hub, which can take over, and argocd-agentctl for both.
type Hubs struct {
	Second   *Program                    // principal of the second hub
	Links    map[string]*faultproxy.Link // connection of the standby, by the name of the hub that is the standby
	Identity string                      // of both hubs

	lab         *lab.Lab
	address     string // of the second principal
	cli         string // argocd-agentctl
	kubeconfig  string // with contexts for both
	kubeconfigs map[string]string
	search      string // host:port of the search API of the first hub
	ca          string
}

// PrepareHubs prepares two hubs with one CA, with the permissions of the chart. It starts no principal. The first hub then
// can be lost: its identity is not the UID of its cluster.
func (p *Product) PrepareHubs(ctx context.Context, cli, identity string) error {
	h := &Hubs{lab: p.lab, cli: cli, Identity: identity, ca: p.pki.CertFile(), kubeconfig: filepath.Join(p.folder, "hubs.kubeconfig"),
		kubeconfigs: map[string]string{}, Links: map[string]*faultproxy.Link{}}
	hubs := map[string]*lab.Cluster{p.lab.Hub().Name: p.lab.Hub(), SecondHub: p.lab.Cluster(SecondHub)}
	if err := lab.WriteKubeconfig(h.kubeconfig, hubs); err != nil {
		return err
	}
	for name, c := range hubs {
		if err := p.storeCA(ctx, c); err != nil {
			return err
		}
		file, err := c.InstallPrincipal(ctx, hubAccount, "principal.settings.active-hub-address=127.0.0.1:1,principal.settings.namespace-create-enable=true,principal.settings.search-port=1")
		if err != nil {
			return err
		}
		h.kubeconfigs[name] = file
	}
	p.Hubs = h
	return nil
}

// storeCA stores the CA of the product on a hub, as an installation does.
func (p *Product) storeCA(ctx context.Context, c *lab.Cluster) error {
	data := map[string][]byte{}
	for key, file := range map[string]string{"tls.crt": p.pki.CertFile(), "ca.crt": p.pki.CertFile(), "tls.key": p.pki.KeyFile()} {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the CA of the product: %w", err)
		}
		data[key] = text
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-ca"}, Type: corev1.SecretTypeTLS, Data: data}
	if _, err := c.Client().CoreV1().Secrets(lab.ArgoCDNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("store the CA on %s: %w", c.Name, err)
	}
	return nil
}

// StartHubs starts the principal of the first hub, makes the second hub its standby, and starts its principal.
func (p *Product) StartHubs(ctx context.Context) (err error) {
	h, ports := p.Hubs, [3]int{}
	for i := range ports {
		if ports[i], err = p.lab.Port(ctx); err != nil {
			return err
		}
	}
	p.port, h.address, h.search = ports[0], "127.0.0.1:"+strconv.Itoa(ports[1]), "127.0.0.1:"+strconv.Itoa(ports[2])
	if h.Links[SecondHub], err = p.lab.Link(p.Address()); err != nil {
		return err
	}
	if h.Links[p.lab.Hub().Name], err = p.lab.Link(h.address); err != nil {
		return err
	}
	if err := h.SetState(ctx, 1); err != nil {
		return err
	}
	live, err := p.liveOfPrincipal(ctx)
	if err != nil {
		return err
	}
	if p.Principal, err = p.startHub(ctx, p.lab.Hub().Name, p.port, append(live, "--search-port", strconv.Itoa(ports[2]))); err != nil {
		return err
	}
	if err := p.Principal.WaitReady(ctx, p.Principal.ready); err != nil {
		return err
	}
	if err := h.Demote(ctx, SecondHub, p.lab.Hub().Name); err != nil {
		return err
	}
	h.Second, err = p.startHub(ctx, SecondHub, ports[1], []string{"--enable-resource-proxy=false", "--redis-proxy-port", "0"})
	return err
}

func (p *Product) startHub(ctx context.Context, name string, port int, flags []string) (*Program, error) {
	pair, err := p.pki.Server("principal-" + name)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--active-hub-address", p.Hubs.Links[name].Addr(), "--namespace-create-enable")
	return p.start(ctx, "principal-"+name, p.Hubs.kubeconfigs[name], principalArgs(p.pki, pair, port, flags))
}

// SetState makes the first hub the active one with a generation.
func (h *Hubs) SetState(ctx context.Context, generation int) error {
	return h.lab.Hub().Apply(ctx, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-agent-hub}, data: {identity: %s, role: active, generation: "%d"}}`, h.Identity, generation))
}

// Generation returns the generation of the first hub.
func (h *Hubs) Generation(ctx context.Context) (int, error) {
	state, err := h.lab.Hub().Client().CoreV1().ConfigMaps(lab.ArgoCDNamespace).Get(ctx, "argocd-agent-hub", metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the state of the hub: %w", err)
	}
	return strconv.Atoi(state.Data["generation"])
}

// Run runs argocd-agentctl hub with contexts named like the hubs. It returns the output.
func (h *Hubs) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.cli, append([]string{"hub"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(h.kubeconfig), "KUBECONFIG=" + h.kubeconfig, "ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + lab.ArgoCDNamespace}
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), fmt.Errorf("argocd-agentctl hub %s: %w: %s%s", strings.Join(args, " "), err, out, exit.Stderr)
	}
	return string(out), err
}

// Demote makes a hub the standby of another one.
func (h *Hubs) Demote(ctx context.Context, standby, active string) error {
	_, err := h.Run(ctx, "demote", "--principal-context", standby, "--other-context", active, "--yes")
	return err
}

// Switch makes the standby the active hub while both can be reached.
func (h *Hubs) Switch(ctx context.Context, active, standby string) error {
	if _, err := h.Run(ctx, "demote", "--principal-context", active, "--yes"); err != nil {
		return err
	}
	if _, err := h.Run(ctx, "promote", "--principal-context", standby, "--other-context", active, "--yes"); err != nil {
		return err
	}
	return h.Demote(ctx, active, standby)
}

// Replace makes the standby the active hub although the active hub cannot be reached.
func (h *Hubs) Replace(ctx context.Context, standby string) error {
	_, err := h.Run(ctx, "promote", "--principal-context", standby, "--other-context", lab.Unreachable, "--force", lab.Unreachable, "--yes")
	return err
}

// RebuildPlan is what `hub rebuild` shows.
type RebuildPlan struct {
	Identity    string
	Objects     []struct{ Kind, Namespace, Name, Action, Detail string }
	Differences []any
}

// Rebuild runs `hub rebuild` for the first hub. A plan with differences is an error.
func (h *Hubs) Rebuild(ctx context.Context, flags ...string) (plan RebuildPlan, err error) {
	out, err := h.Run(ctx, append([]string{"rebuild", "--principal-context", h.lab.Hub().Name, "--server", h.search, "--server-ca", h.ca, "--identity", h.Identity, "-o", "json"}, flags...)...)
	if err == nil && len(flags) == 0 {
		err = json.Unmarshal([]byte(out), &plan)
	}
	return plan, err
}

// Received returns the store and the revision up to which a standby has received everything of the active hub.
func Received(ctx context.Context, standby *lab.Cluster) (uid string, revision uint64, err error) {
	state, err := standby.Client().CoreV1().ConfigMaps(lab.ArgoCDNamespace).Get(ctx, "argocd-agent-hub", metav1.GetOptions{})
	if err != nil {
		return "", 0, fmt.Errorf("read the state of hub %s: %w", standby.Name, err)
	}
	uid, text, _ := strings.Cut(state.Data["predecessor"], "/")
	if text == "" {
		return uid, 0, nil
	}
	if revision, err = strconv.ParseUint(text, 10, 64); err != nil {
		return "", 0, fmt.Errorf("read the state of hub %s: %w", standby.Name, err)
	}
	return uid, revision, nil
}

func (h *Hubs) close() {
	if h.Second != nil {
		h.Second.Kill()
	}
	for _, link := range h.Links {
		_ = link.Close()
	}
}
