package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/policy"
)

// fakeAPI is an API server with one Deployment and a list of created Jobs.
type fakeAPI struct {
	*kube.Client
	mu       sync.Mutex
	revision int
	image    string
	record   string
	jobs     []string
	forbid   string // requests that are denied: method and resource
	before   func() // called once before the next patch
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{revision: 1, image: oldImage}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	f.Client = client
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":%q,"code":%d,"message":%q,"details":{"name":"x"}}`, reason, code, reason)
	}
	resource := "deployments"
	if strings.HasSuffix(r.URL.Path, "/jobs") {
		resource = "jobs"
	}
	if f.forbid == r.Method+" "+resource {
		fail(http.StatusForbidden, "Forbidden")
		return
	}
	body, _ := io.ReadAll(r.Body)
	switch {
	case resource == "jobs":
		f.jobs = append(f.jobs, string(body))
		_, _ = w.Write(body)
		return
	case r.URL.Path != "/apis/apps/v1/namespaces/argocd/deployments/argocd-agent-agent":
		fail(http.StatusNotFound, "NotFound")
		return
	case r.Method == http.MethodPatch:
		if f.before != nil {
			do := f.before
			f.before = nil
			do()
		}
		var operations []kube.PatchOperation
		_ = json.Unmarshal(body, &operations)
		if operations[0].Value != strconv.Itoa(f.revision) {
			fail(http.StatusConflict, "Conflict")
			return
		}
		f.revision++
		for _, o := range operations {
			switch {
			case strings.HasSuffix(o.Path, "/annotations/argocd-agent.argoproj-labs.io~1upgrade"):
				f.record, _ = o.Value.(string)
			case o.Path == "/spec/template/spec/containers/1/image":
				f.image, _ = o.Value.(string)
			}
		}
	}
	annotations, _ := json.Marshal(map[string]string{annotation: f.record})
	fmt.Fprintf(w, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"argocd-agent-agent","namespace":"argocd","uid":"u","resourceVersion":"%d","annotations":%s},
		"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"other:1"},{"name":"agent","image":%q}]}}}}`, f.revision, annotations, f.image)
}

func (f *fakeAPI) phase(t *testing.T) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var r record
	if f.record != "" {
		if err := json.Unmarshal([]byte(f.record), &r); err != nil {
			t.Fatal(err)
		}
	}
	return r.Phase
}

// change changes the record as another client does.
func (f *fakeAPI) change(t *testing.T, do func(*record)) {
	t.Helper()
	var r record
	if err := json.Unmarshal([]byte(f.record), &r); err != nil {
		t.Fatal(err)
	}
	do(&r)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	f.record, f.revision = string(text), f.revision+1
}

// expire lets the timeout of the upgrade pass.
func (f *fakeAPI) expire(t *testing.T) {
	t.Helper()
	f.change(t, func(r *record) { r.Started.Time = r.Started.Add(-r.Timeout.Duration) })
}

// process is a process of an agent, with what it reported in its session.
type process struct {
	*Agent
	inSync  bool
	reports []engine.UpgradeState
}

func (f *fakeAPI) process(version string, incarnation uint64) *process {
	p := &process{inSync: true}
	p.Agent = New(Config{Client: f.Client, Namespace: "argocd", Deployment: "argocd-agent-agent", Version: version, Process: incarnation,
		Allowed: func(*policy.Upgrade) error { return nil }, InSync: func(context.Context) bool { return p.inSync }, Log: slog.New(slog.DiscardHandler)})
	p.Opened(func(s engine.UpgradeState) { p.reports = append(p.reports, s) })
	return p
}

func (p *process) last() string {
	if len(p.reports) == 0 {
		return ""
	}
	return p.reports[len(p.reports)-1].Phase
}

func (f *fakeAPI) job() *restoreJob {
	return &restoreJob{client: f.Client, ref: kind.Ref{Resource: deployments, Namespace: "argocd", Name: "argocd-agent-agent"}, id: "1", log: slog.New(slog.DiscardHandler)}
}

var request = engine.Upgrade{ID: "1", Version: "v0.3.0", TimeoutMillis: 300_000}

// upgrading returns an API server with a changed image, and the Job.
func upgrading(t *testing.T) (*fakeAPI, *restoreJob) {
	t.Helper()
	f := newFakeAPI(t)
	old, job := f.process("v0.2.0", 1), f.job()
	old.step(t.Context())
	if old.last() != v1alpha1.UpgradeReady {
		t.Fatalf("reports %+v", old.reports)
	}
	old.Received(request)
	old.step(t.Context())
	if f.phase(t) != v1alpha1.UpgradePreparing || len(f.jobs) != 0 {
		t.Fatalf("phase %s, Jobs %v", f.phase(t), f.jobs)
	}
	old.step(t.Context())
	old.step(t.Context())
	if len(f.jobs) != 1 || !strings.Contains(f.jobs[0], `"--id","1"`) || f.image != oldImage {
		t.Fatalf("image %s, Jobs %v", f.image, f.jobs)
	}
	if _, err := job.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.phase(t) != phaseJobRunning || f.image != oldImage {
		t.Fatalf("phase %s, image %s", f.phase(t), f.image)
	}
	old.step(t.Context())
	if f.phase(t) != v1alpha1.UpgradeUpgrading || f.image != newImage || old.last() != v1alpha1.UpgradeUpgrading {
		t.Fatalf("phase %s, image %s, reports %+v", f.phase(t), f.image, old.reports)
	}
	return f, job
}

func TestAgent_NewProcessConfirms(t *testing.T) {
	f, job := upgrading(t)
	young := f.process("v0.3.0", 2)
	young.inSync = false
	if !young.step(t.Context()) || f.phase(t) != v1alpha1.UpgradeUpgrading {
		t.Fatalf("confirmed without being in sync: %s", f.phase(t))
	}
	young.inSync = true
	young.step(t.Context())
	if again := young.step(t.Context()); again || young.last() != v1alpha1.UpgradeSucceeded || f.phase(t) != v1alpha1.UpgradeSucceeded {
		t.Fatalf("reports %+v", young.reports)
	}
	f.expire(t)
	if done, err := job.step(t.Context()); !done || err != nil || f.image != newImage {
		t.Errorf("done %v, error %v, image %s", done, err, f.image)
	}
	// The hub repeats the request.
	young.Received(request)
	young.step(t.Context())
	if f.image != newImage || len(f.jobs) != 1 || young.last() != v1alpha1.UpgradeSucceeded {
		t.Errorf("image %s, Jobs %v", f.image, f.jobs)
	}
}

// A hub that cannot be reached does not matter: the Job decides with the Deployment alone.
func TestRestore_RestoresTheOldImageOnce(t *testing.T) {
	f, job := upgrading(t)
	broken := f.process("v0.3.0", 2)
	broken.inSync = false
	broken.step(t.Context())
	if done, err := job.step(t.Context()); done || err != nil || f.image != newImage {
		t.Fatalf("done %v, error %v, image %s before the timeout", done, err, f.image)
	}
	f.expire(t)
	if done, err := job.step(t.Context()); done || err != nil || f.image != oldImage || f.phase(t) != v1alpha1.UpgradeRolledBack {
		t.Fatalf("done %v, error %v, image %s, phase %s", done, err, f.image, f.phase(t))
	}
	f.image = newImage // a user tries it again
	if done, err := job.step(t.Context()); !done || err != nil || f.image != newImage {
		t.Errorf("done %v, error %v, image %s", done, err, f.image)
	}
	f.image = oldImage
	old := f.process("v0.2.0", 3)
	old.step(t.Context())
	old.Received(request)
	if again := old.step(t.Context()); again || old.last() != v1alpha1.UpgradeRolledBack || len(f.jobs) != 1 || f.image != oldImage {
		t.Errorf("reports %+v, image %s", old.reports, f.image)
	}
}

// Both write only what they have read. So only one of them wins.
func TestRestore_AndConfirmationExcludeEachOther(t *testing.T) {
	f, job := upgrading(t)
	f.expire(t)
	f.before = func() { f.change(t, func(r *record) { r.Phase = v1alpha1.UpgradeSucceeded }) }
	if done, err := job.step(t.Context()); done || err != nil || f.image != newImage {
		t.Fatalf("the Job restored although the agent confirmed: done %v, error %v, image %s", done, err, f.image)
	}
	if done, err := job.step(t.Context()); !done || err != nil || f.image != newImage {
		t.Errorf("done %v, error %v, image %s", done, err, f.image)
	}

	f, _ = upgrading(t)
	young := f.process("v0.3.0", 2)
	f.before = func() {
		f.change(t, func(r *record) { r.Phase = v1alpha1.UpgradeRolledBack })
		f.image = oldImage
	}
	young.step(t.Context())
	young.step(t.Context())
	if f.phase(t) != v1alpha1.UpgradeRolledBack || f.image != oldImage {
		t.Errorf("phase %s, image %s", f.phase(t), f.image)
	}
}

// A process that was suspended before it changes the image finds that the Job has given up.
func TestAgent_SuspendedProcessChangesNothing(t *testing.T) {
	f := newFakeAPI(t)
	old, job := f.process("v0.2.0", 1), f.job()
	old.Received(request)
	old.step(t.Context())
	old.step(t.Context())
	_, _ = job.step(t.Context())
	f.before = func() { f.change(t, func(r *record) { r.Phase = v1alpha1.UpgradeFailed }) }
	old.step(t.Context())
	old.step(t.Context())
	if f.image != oldImage || old.last() != v1alpha1.UpgradeFailed {
		t.Errorf("image %s, reports %+v", f.image, old.reports)
	}
}

func TestAgent_MissingPermissionsChangeNothing(t *testing.T) {
	for forbid, want := range map[string]string{"GET deployments": v1alpha1.UpgradeRefused, "PATCH deployments": v1alpha1.UpgradeRefused, "POST jobs": v1alpha1.UpgradeFailed} {
		f := newFakeAPI(t)
		f.forbid = forbid
		p := f.process("v0.2.0", 1)
		p.Received(request)
		for range 3 {
			p.step(t.Context())
		}
		if p.last() != want || p.reports[len(p.reports)-1].ID != "1" || f.image != oldImage || len(f.jobs) != 0 {
			t.Errorf("without %s: reports %+v, image %s", forbid, p.reports, f.image)
		}
	}
}

// Only a user can correct the record. Until then the agent reports it once, does not read the Deployment all the time, and
// continues after the correction.
func TestAgent_UnreadableRecordIsReportedOnce(t *testing.T) {
	f := newFakeAPI(t)
	f.record = "{"
	p := f.process("v0.2.0", 1)
	if p.step(t.Context()) || len(p.reports) != 1 || p.last() != v1alpha1.UpgradeRefused || !strings.Contains(p.reports[0].Message, "annotation") {
		t.Fatalf("without a request: %+v", p.reports)
	}
	p.Received(request)
	var waits time.Duration
	for range 10 {
		if !p.step(t.Context()) {
			t.Fatal("the request is never decided")
		}
		waits += p.wait
	}
	if len(p.reports) != 2 || p.last() != v1alpha1.UpgradeRefused || p.reports[1].ID != "1" || waits < 5*time.Minute {
		t.Errorf("10 reads in %s, reports %+v", waits, p.reports)
	}
	f.record = ""
	p.step(t.Context())
	if f.phase(t) != v1alpha1.UpgradePreparing || p.wait != interval {
		t.Errorf("after the correction: phase %s, next read after %s", f.phase(t), p.wait)
	}
}

func TestAgent_WithoutDeploymentRefuses(t *testing.T) {
	var got []engine.UpgradeState
	a := New(Config{})
	a.Opened(func(s engine.UpgradeState) { got = append(got, s) })
	a.step(t.Context())
	a.step(t.Context())
	a.Received(request)
	a.step(t.Context())
	a.Closed()
	a.Received(engine.Upgrade{ID: "2"})
	a.step(t.Context())
	if len(got) != 2 || got[0].Phase != v1alpha1.UpgradeRefused || got[0].ID != "" || got[1].ID != "1" {
		t.Errorf("%+v", got)
	}
}
