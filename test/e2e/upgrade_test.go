package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

const (
	upgradeRepository = "registry.example.com/argocd-agent"
	upgradeDeployment = "argocd-agent-agent"
	upgradeTimeout    = "12s" // in which a new agent must be in sync
)

// kubelet replaces the kubelet of an agent's cluster, which the lab does not have: it runs the agent with the binary of the
// Deployment's image, and Jobs with the token of their ServiceAccount.
type kubelet struct {
	*agent
	binaries map[string]string // image → binary
	image    string            // that runs
	jobs     map[string]*program
}

// newKubelet installs what self-upgrade needs, as `argocd-agentctl join --self-upgrade` does, and restarts the agent with it.
func newKubelet(t *testing.T, a *agent, binaries map[string]string) *kubelet {
	t.Helper()
	k := &kubelet{agent: a, binaries: binaries, image: upgradeRepository + ":dev", jobs: map[string]*program{}}
	manifests, err := install.Agent{SelfUpgrade: true, Image: k.image}.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifests), "---\n") {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		kind, restores := u.GetKind(), strings.HasSuffix(u.GetName(), "-restore") || strings.HasSuffix(u.GetName(), "-self-upgrade")
		resource := map[string]schema.GroupVersionResource{"Deployment": deployments,
			"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"}, "Role": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
			"RoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}}[kind]
		if kind != "Deployment" && (!restores || resource.Resource == "") {
			continue // the lab has it
		}
		o := a.spoke.object(resource, lab.ArgoCDNamespace, u.GetName())
		o.create(t, u.Object)
		t.Cleanup(func() { o.discard(t) })
	}
	args := slices.Clone(a.args)
	a.args = append(a.args, "--self-upgrade-deployment", upgradeDeployment)
	t.Cleanup(func() {
		for name, job := range k.jobs {
			job.signal(9)
			a.spoke.object(jobs, lab.ArgoCDNamespace, name).discard(t)
		}
		a.file, a.args = "", args
		if a.running() {
			a.kill(t)
		}
		a.start(t)
	})
	a.restart(t)
	a.connected(t)
	return k
}

// sync starts what the cluster wants to run.
func (k *kubelet) sync(t *testing.T) {
	t.Helper()
	image := k.wanted(t)
	if image != k.image {
		k.terminate(t)
		k.image, k.file = image, k.binaries[image]
		if k.file == "" && !strings.HasSuffix(image, ":dev") {
			t.Fatalf("%s has image %s", k.name, image)
		}
		k.start(t)
	}
	list, err := k.spoke.Client().BatchV1().Jobs(lab.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + upgradeDeployment + "-restore"})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range list.Items {
		if k.jobs[job.Name] == nil {
			k.jobs[job.Name] = k.startJob(t, &job)
		}
	}
}

// wanted returns the image of the agent's container in the Deployment.
func (k *kubelet) wanted(t *testing.T) string {
	t.Helper()
	d, err := k.spoke.Client().AppsV1().Deployments(lab.ArgoCDNamespace).Get(t.Context(), upgradeDeployment, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// startJob runs the container of a Job. It must have the image that runs now.
func (k *kubelet) startJob(t *testing.T, job *batchv1.Job) *program {
	t.Helper()
	pod := job.Spec.Template.Spec
	if image := pod.Containers[0].Image; image != k.image {
		t.Errorf("%s: the Job has image %s, not %s", k.name, image, k.image)
	}
	token, err := k.spoke.Client().CoreV1().ServiceAccounts(lab.ArgoCDNamespace).CreateToken(t.Context(), pod.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := k.spoke.CA()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "job", Contexts: map[string]*clientcmdapi.Context{"job": {Cluster: "job", AuthInfo: "job"}},
		Clusters:  map[string]*clientcmdapi.Cluster{"job": {Server: k.spoke.Server, CertificateAuthorityData: ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"job": {Token: token.Status.Token}}}, file); err != nil {
		t.Fatal(err)
	}
	p := newProgram(k.name+"-"+job.Name, filepath.Dir(k.log), append(slices.Clone(pod.Containers[0].Args), "--kubeconfig", file)...)
	p.file = k.file
	p.start(t)
	return p
}

// jobsEnd waits until all Jobs have ended without an error.
func (k *kubelet) jobsEnd(t *testing.T, count int) {
	t.Helper()
	if len(k.jobs) != count {
		t.Errorf("%s has had %d Jobs, want %d", k.name, len(k.jobs), count)
	}
	for name, job := range k.jobs {
		if code := job.wait(t); code != 0 {
			t.Errorf("Job %s of %s ended with code %d", name, k.name, code)
		}
	}
}

// upgradeLine is a line of the output of upgrade.
type upgradeLine struct {
	Wave                           int
	Agent, Version, State, Message string
}

// upgrade runs the CLI while the kubelets work, and returns the last line of each agent, the order of agents that were asked,
// and the exit code.
func upgrade(t *testing.T, w *testEnv, kubelets []*kubelet, each func(), args ...string) (last map[string]upgradeLine, order []string, code int) {
	t.Helper()
	file, err := buildCLI()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, append([]string{"upgrade", "-l", "upgrade=test", "--timeout", upgradeTimeout, "--halt-on-divergence"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + w.hub.Kubeconfig, "ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + lab.ArgoCDNamespace}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	await(t, "the upgrade to end", func() error {
		for _, k := range kubelets {
			k.sync(t)
		}
		if each != nil {
			each()
		}
		select {
		case err = <-ended:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	t.Logf("argocd-agentctl upgrade %s\n%s%s", strings.Join(args, " "), stdout.String(), stderr.String())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	last = map[string]upgradeLine{}
	for line := range strings.Lines(stdout.String()) {
		var one upgradeLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		last[one.Agent] = one
		if one.State == "Succeeded" {
			order = append(order, one.Agent)
		}
	}
	return last, order, code
}

// inNewSession ends the session of an agent, and waits until the Agent shows that the next one is in sync and reports a phase.
func (w *testEnv) inNewSession(t *testing.T, name, phase string, end func()) {
	t.Helper()
	before := at(w.hub.agent(name).get(t), "status.session")
	end()
	w.hub.agent(name).becomes(t, field("status.upgrade.phase", phase), truth("status.connected", true), agentShows("Synced", "True", ""), func(u *unstructured.Unstructured) error {
		if at(u, "status.session") == before {
			return errors.New("it shows the session before")
		}
		return nil
	})
}

// TestUpgrade_WavesAndRollback upgrades two agents in waves. Then an agent whose new image is broken, and that cannot reach
// the hub, gets its old image back, and the upgrade halts.
func TestUpgrade_WavesAndRollback(t *testing.T) {
	w := shared(t)
	newer := filepath.Join(t.TempDir(), "argocd-agent-v0.3.0")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v0.3.0", "-o", newer, "github.com/argocd-agent/argocd-agent/cmd/argocd-agent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	broken, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	binaries := map[string]string{upgradeRepository + ":v0.3.0": newer, upgradeRepository + ":v0.4.0": broken}
	var kubelets []*kubelet
	names := []string{"autonomous", "managed"} // as in the waves
	for _, name := range names {
		w.hub.agent(name).patch(t, `{"metadata":{"labels":{"upgrade":"test"}}}`)
		t.Cleanup(func() { w.hub.agent(name).patch(t, `{"metadata":{"labels":{"upgrade":null}},"spec":{"upgrade":null}}`) })
		w.inNewSession(t, name, "Refused", func() { kubelets = append(kubelets, newKubelet(t, w.agents[name], binaries)) })
		w.hub.agent(name).becomes(t, func(u *unstructured.Unstructured) error { // the agent before refused it too
			if message := fmt.Sprint(at(u, "status.upgrade.message")); !strings.Contains(message, "no AgentPolicy has spec.upgrade") {
				return errors.New(message)
			}
			return nil
		})
	}

	// Without an AgentPolicy, the hub cannot upgrade.
	last, _, _ := upgrade(t, w, kubelets, nil, "--to", "v0.3.0", "--dry-run")
	for _, name := range names {
		if one := last[name]; one.State != "Skipped" || !strings.Contains(one.Message, "no AgentPolicy has spec.upgrade") {
			t.Errorf("%+v", one)
		}
		w.inNewSession(t, name, "Ready", func() {
			w.agents[name].limit(t, map[string]any{"upgrade": map[string]any{"repository": upgradeRepository, "downgrade": true}})
		})
	}

	// The hub cannot choose the image.
	if last, _, code := upgrade(t, w, kubelets, nil, "--to", "v0.3.0", "--image", "registry.example.com/evil", "--wave", "1,100%"); code != 3 ||
		last["autonomous"].State != "Refused" || !strings.Contains(last["autonomous"].Message, "only "+upgradeRepository+" is allowed") || last["managed"].State != "Planned" {
		t.Errorf("exit code %d, %+v", code, last)
	}
	w.hub.agent("autonomous").patch(t, `{"spec":{"upgrade":null}}`)
	for _, k := range kubelets {
		k.jobsEnd(t, 0)
		w.inNewSession(t, k.mode, "Ready", k.link.Reset) // it reports that it is ready
	}

	// Both are upgraded, one after the other.
	app := newCommanded(t, w, "managed", "upgrade")
	_, order, code := upgrade(t, w, kubelets, nil, "--to", "v0.3.0", "--wave", "1,100%")
	if code != 0 || fmt.Sprint(slices.Compact(order)) != fmt.Sprint(names) {
		t.Fatalf("exit code %d, order %v", code, order)
	}
	for i, k := range kubelets {
		if k.image != upgradeRepository+":v0.3.0" {
			t.Errorf("%s runs %s", k.name, k.image)
		}
		w.hub.agent(names[i]).is(t, field("status.version", "v0.3.0"), field("status.upgrade.phase", "Succeeded"), agentShows("Synced", "True", ""))
		k.jobsEnd(t, 1)
	}
	w.argocd(t, "app", "sync", app.name)
	app.hub.becomes(t, synced, healthyApp)

	// The new image does not start, and the hub cannot be reached until the Job has restored the old one.
	first, cut := kubelets[0], false
	last, _, code = upgrade(t, w, kubelets, func() {
		switch {
		case !cut && first.image == upgradeRepository+":v0.4.0":
			cut = true
			if err := first.link.Cut(faultproxy.Refuse); err != nil {
				t.Fatal(err)
			}
		case cut && first.image == upgradeRepository+":v0.3.0":
			if err := first.link.Restore(); err != nil {
				t.Fatal(err)
			}
		}
	}, "--to", "v0.4.0", "--wave", "1,100%")
	if one := last["autonomous"]; code != 3 || !cut || one.State != "RolledBack" || one.Version != "v0.3.0" || last["managed"].State != "Planned" {
		t.Fatalf("exit code %d, %+v", code, last)
	}
	first.connected(t)
	first.jobsEnd(t, 2)
	kubelets[1].jobsEnd(t, 1)
	w.hub.agent("managed").is(t, field("status.version", "v0.3.0"), field("spec.upgrade.version", "v0.3.0"))
	if show := w.hub.ctl(t, "agent", "show", "autonomous"); !strings.Contains(show, "RolledBack") || !strings.Contains(show, "The Job restored "+upgradeRepository+":v0.3.0") {
		t.Errorf("agent show prints\n%s", show)
	}

	// The hub repeats the request in each session. The agent does not try it again.
	since := first.logOffset(t)
	first.link.Reset()
	first.waitForLog(t, since, "Connected to the hub")
	w.hub.agent("autonomous").becomes(t, agentShows("Synced", "True", ""), field("status.upgrade.phase", "RolledBack"))
	if first.sync(t); first.wanted(t) != upgradeRepository+":v0.3.0" {
		t.Errorf("%s wants %s", first.name, first.wanted(t))
	}
	first.jobsEnd(t, 2)
}
