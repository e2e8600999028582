// Package product runs principal and agents in a lab, with certificates of their own CA and the permissions of the
// install manifests. Benchmarks and the demo use it. It runs the binaries as users do.
package product

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/pki"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Build builds argocd-agent into a directory, stripped and static as in a release.
func Build(ctx context.Context, folder string) (string, error) {
	return buildCommand(ctx, folder, "argocd-agent")
}

// BuildCLI builds argocd-agentctl into a directory.
func BuildCLI(ctx context.Context, folder string) (string, error) {
	return buildCommand(ctx, folder, "argocd-agentctl")
}

func buildCommand(ctx context.Context, folder, name string) (string, error) {
	file := filepath.Join(folder, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "github.com/argocd-agent/argocd-agent/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return file, nil
}

// Product is a principal and its agents in a lab.
type Product struct {
	Principal *Program
	Replicas  []*Program // of the principal, started later
	Agents    map[string]*Agent
	Live      Live
	Hubs      *Hubs  // nil if there is one hub
	Links     *Links // nil if programs use API servers and Redis directly

	lab    *lab.Lab
	file   string
	folder string
	pki    *pki.Authority
	port   int
	serves bool // argocd-server
}

// Program is a running principal or agent.
type Program struct {
	*proc.Component
	Health  string // URL that returns 200 when it is ready
	Metrics string // URL
}

// Agent is a running agent. Its connection to the principal uses Link.
type Agent struct {
	Program
	Link   *faultproxy.Link
	Second *faultproxy.Link // to the second hub; nil if there is one hub
}

// New prepares a product with the given binary and starts nothing.
func New(l *lab.Lab, file string) (*Product, error) {
	folder, err := os.MkdirTemp(l.Dir(), "product-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the product: %w", err)
	}
	authority, err := pki.NewAuthority(folder, "argocd-agent-ca")
	if err != nil {
		return nil, err
	}
	return &Product{lab: l, file: file, folder: folder, pki: authority, Agents: map[string]*Agent{}}, nil
}

// StartPrincipal starts the principal and waits until it is ready.
func (p *Product) StartPrincipal(ctx context.Context, flags ...string) (err error) {
	if p.port, err = p.lab.Port(ctx); err != nil {
		return err
	}
	live, err := p.liveOfPrincipal(ctx)
	if err != nil {
		return err
	}
	p.Principal, err = p.startPrincipal(ctx, "principal", p.port, append(live, flags...))
	return err
}

// StartReplica starts another replica of the principal without live access, waits until it is ready, and returns its address.
func (p *Product) StartReplica(ctx context.Context, name string, flags ...string) (replica *Program, address string, err error) {
	port, err := p.lab.Port(ctx)
	if err != nil {
		return nil, "", err
	}
	if replica, err = p.startPrincipal(ctx, name, port, append([]string{"--replica-name", name, "--enable-resource-proxy=false", "--redis-proxy-port", "0"}, flags...)); err != nil {
		return nil, "", err
	}
	p.Replicas = append(p.Replicas, replica)
	return replica, "127.0.0.1:" + strconv.Itoa(port), nil
}

func (p *Product) startPrincipal(ctx context.Context, name string, port int, flags []string) (*Program, error) {
	pair, err := p.pki.Server(name)
	if err != nil {
		return nil, err
	}
	started, err := p.start(ctx, name, p.lab.Hub().RunAs.File, principalArgs(p.pki, pair, port, flags))
	if err != nil {
		return nil, err
	}
	return started, started.WaitReady(ctx, started.ready)
}

func principalArgs(authority *pki.Authority, pair pki.Pair, port int, flags []string) []string {
	return append([]string{"principal", "--listen-host", "127.0.0.1", "--listen-port", strconv.Itoa(port),
		"--tls-cert", pair.Cert, "--tls-key", pair.Key, "--root-ca-path", authority.CertFile(), "--auth", "mtls:CN=([^,]+)"}, flags...)
}

// StartAgent registers an agent and starts it on the spoke of the same name. It does not wait for the connection.
func (p *Product) StartAgent(ctx context.Context, spoke, mode string, flags ...string) (*Agent, error) {
	pair, err := p.pki.Client(spoke)
	if err != nil {
		return nil, err
	}
	if err := p.Register(ctx, spoke, mode); err != nil {
		return nil, err
	}
	link, err := p.lab.Link("127.0.0.1:" + strconv.Itoa(p.port))
	if err != nil {
		return nil, err
	}
	host, port, err := splitAddr(link.Addr())
	if err != nil {
		return nil, err
	}
	var second *faultproxy.Link
	if p.Hubs != nil {
		if second, err = link.SamePort(p.Hubs.address); err != nil {
			return nil, err
		}
		host += ",127.0.0.2"
	}
	live, err := p.liveOfAgent(p.lab.Cluster(spoke))
	if err != nil {
		return nil, err
	}
	flags = append(live, flags...)
	program, err := p.start(ctx, spoke, p.lab.Cluster(spoke).RunAs.File, append([]string{"agent",
		"--agent-mode", mode, "--server-address=" + host, "--server-port", port,
		"--tls-client-cert", pair.Cert, "--tls-client-key", pair.Key, "--root-ca-path", p.pki.CertFile()}, flags...))
	if err != nil {
		return nil, err
	}
	a := &Agent{Program: *program, Link: link, Second: second}
	p.Agents[spoke] = a
	return a, nil
}

// Register creates the Agent of an agent on the hub.
func (p *Product) Register(ctx context.Context, spoke, mode string) error {
	if err := p.lab.Hub().Apply(ctx, fmt.Sprintf(`{apiVersion: argocd-agent.argoproj-labs.io/v1alpha1, kind: Agent,
metadata: {name: %s, namespace: %s}, spec: {mode: %s}}`, spoke, lab.ArgoCDNamespace, mode)); err != nil {
		return fmt.Errorf("register agent %s: %w", spoke, err)
	}
	return nil
}

// Address returns the address of the principal.
func (p *Product) Address() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// Credentials writes the files of an agent identity: certificate, key and CA.
func (p *Product) Credentials(agent string) (cert, key, ca string, err error) {
	pair, err := p.pki.Client(agent)
	return pair.Cert, pair.Key, p.pki.CertFile(), err
}

// Connected waits until an agent is connected.
func (a *Agent) Connected(ctx context.Context) error { return a.WaitReady(ctx, a.ready) }

func (p *Product) start(ctx context.Context, name, kubeconfig string, args []string) (*Program, error) {
	kubeconfig, err := p.kubeconfig(name, kubeconfig)
	if err != nil {
		return nil, err
	}
	health, err := p.lab.Port(ctx)
	if err != nil {
		return nil, err
	}
	metrics, err := p.lab.Port(ctx)
	if err != nil {
		return nil, err
	}
	args = append(args, "--kubeconfig="+kubeconfig, "--namespace", lab.ArgoCDNamespace,
		"--healthz-port", strconv.Itoa(health), "--metrics-port", strconv.Itoa(metrics), "--log-level", "warn")
	program := &Program{
		Component: proc.NewComponent(proc.Spec{Name: name, Program: p.file, Args: append([]string{"argocd-agent"}, args...), Dir: p.folder,
			Log: p.logFile(name), Env: []string{"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH")}}),
		Health:  fmt.Sprintf("http://127.0.0.1:%d/healthz", health),
		Metrics: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics),
	}
	if err := program.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return program, nil
}

// logFile returns the log of a program. It is with those of the lab, which Save copies.
func (p *Product) logFile(name string) string {
	return filepath.Join(model.LogFolder(p.lab.Dir()), "argocd-agent-"+name+".log")
}

// RestartWith restarts a process with a changed flag, and waits until it is ready.
func (p *Program) RestartWith(ctx context.Context, flag, value string) error {
	if err := p.Restart(proc.Change{Flags: map[string]string{flag: value}}); err != nil {
		return fmt.Errorf("restart with %s=%s: %w", flag, value, err)
	}
	return p.WaitReady(ctx, p.ready)
}

// RestartWithEnv restarts a process with a changed variable of its environment, and waits until it is ready.
func (p *Program) RestartWithEnv(ctx context.Context, name, value string) error {
	if err := p.Restart(proc.Change{Env: map[string]string{name: value}}); err != nil {
		return fmt.Errorf("restart with %s=%s: %w", name, value, err)
	}
	return p.WaitReady(ctx, p.ready)
}

// RestartGracefully restarts a process with SIGTERM, and does not wait until it is ready.
func (p *Program) RestartGracefully() error { return p.Restart(proc.Change{}) }

func (p *Program) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Health, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Close stops everything.
func (p *Product) Close() {
	if p.serves {
		_ = p.lab.Restart(context.Background(), "hub/argocd-server", lab.Flag("--redis", p.lab.Hub().Redis.Address))
	}
	for _, a := range p.Agents {
		a.Kill()
		_ = a.Link.Close()
		if a.Second != nil {
			_ = a.Second.Close()
		}
	}
	if p.Hubs != nil {
		p.Hubs.close()
	}
	for _, replica := range p.Replicas {
		replica.Kill()
	}
	if p.Principal != nil {
		p.Principal.Kill()
	}
	if p.Links != nil {
		p.Links.close()
	}
}
