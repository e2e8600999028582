package upgrade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/policy"
)

const (
	repo     = "registry.example.com:5000/argocd-agent"
	oldImage = repo + ":v0.2.0"
	newImage = repo + ":v0.3.0"
	digest   = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// deploymentOf returns the Deployment of an agent with an image, a record and further metadata.
func deploymentOf(t testing.TB, image string, r *record, metadata string) *deployment {
	t.Helper()
	d, err := decodeDeployment(fmt.Appendf(nil, `{"metadata":{"name":"argocd-agent-agent","namespace":"argocd","uid":"u","resourceVersion":"7"%s},
		"spec":{"template":{"spec":{"serviceAccountName":"argocd-agent-agent","imagePullSecrets":[{"name":"pull"}],"securityContext":{"runAsNonRoot":true},
		"containers":[{"name":"sidecar","image":"other:1"},{"name":"agent","image":%q,"args":["agent"],"securityContext":{"readOnlyRootFilesystem":true}}]}}}}`, metadata, image))
	if err != nil {
		t.Fatal(err)
	}
	if r != nil {
		d.record = *r
	}
	return d
}

func viewOf(t testing.TB, image string, r *record) view {
	t.Helper()
	return view{deployment: deploymentOf(t, image, r, ""), version: "v0.2.0", process: 1, inSync: true, now: start,
		request:    engine.Upgrade{ID: "1", Version: "v0.3.0", TimeoutMillis: 300_000},
		allowed:    func(policy.Upgrade) error { return nil },
		anyAllowed: func() error { return nil }}
}

// recordIn returns the record of upgrade 1 in a phase, begun by process 1.
func recordIn(phase string) *record {
	r := record{ID: "1", Phase: phase, Version: "v0.3.0", From: oldImage, To: newImage, Process: 1}
	r.Timeout.Duration, r.Started.Time = 5*time.Minute, start
	return &r
}

func TestDecide_Request(t *testing.T) {
	forbidden := func(policy.Upgrade) error { return errors.New("forbidden") }
	for name, c := range map[string]struct {
		change  func(*view)
		phase   string
		message string
		writes  bool
	}{
		"allowed":                        {nil, v1alpha1.UpgradePreparing, "can restore " + oldImage, true},
		"without a request":              {func(v *view) { v.request = engine.Upgrade{} }, v1alpha1.UpgradeReady, "", false},
		"without a request, not allowed": {func(v *view) { v.request, v.anyAllowed = engine.Upgrade{}, func() error { return errors.New("none") } }, v1alpha1.UpgradeRefused, "none", false},
		"not allowed":                    {func(v *view) { v.allowed = forbidden }, v1alpha1.UpgradeRefused, "forbidden", false},
		"running version":                {func(v *view) { v.request.Version, v.allowed = "0.2.0", forbidden }, v1alpha1.UpgradeSucceeded, "already runs", false},
		"not in sync":                    {func(v *view) { v.inSync = false }, v1alpha1.UpgradeWaiting, "not in sync", false},
		"paused":                         {func(v *view) { v.deployment.Spec.Paused = true }, v1alpha1.UpgradeRefused, "paused", false},
		"no container":                   {func(v *view) { v.deployment.index = -1 }, v1alpha1.UpgradeRefused, "no container", false},
		"pinned by digest":               {func(v *view) { v.deployment = deploymentOf(t, repo+"@"+digest, nil, "") }, v1alpha1.UpgradeRefused, "by digest", false},
		"image without its version":      {func(v *view) { v.deployment = deploymentOf(t, newImage, nil, "") }, v1alpha1.UpgradeRefused, "already has image", false},
		"hostile version":                {func(v *view) { v.request.Version = "v1@evil" }, v1alpha1.UpgradeRefused, "invalid", false},
		"hostile digest":                 {func(v *view) { v.request.Digest = "sha256:0" }, v1alpha1.UpgradeRefused, "invalid", false},
		"hostile repository":             {func(v *view) { v.request.Repository = "a b" }, v1alpha1.UpgradeRefused, "invalid", false},
		"hostile ID":                     {func(v *view) { v.request.ID = "--deployment" }, v1alpha1.UpgradeRefused, "invalid", false},
		"no timeout":                     {func(v *view) { v.request.TimeoutMillis = 0 }, v1alpha1.UpgradeRefused, "invalid", false},
		"long timeout":                   {func(v *view) { v.request.TimeoutMillis = 7_200_000 }, v1alpha1.UpgradeRefused, "invalid", false},
		"managed by Helm": {func(v *view) {
			v.deployment = deploymentOf(t, oldImage, nil, `,"labels":{"app.kubernetes.io/managed-by":"Helm"}`)
		}, v1alpha1.UpgradeRefused, "helm upgrade", false},
		"after another upgrade":    {func(v *view) { v.deployment.record = *recordIn(v1alpha1.UpgradeSucceeded); v.request.ID = "2" }, v1alpha1.UpgradePreparing, "", true},
		"after it succeeded":       {func(v *view) { v.deployment.record = *recordIn(v1alpha1.UpgradeSucceeded) }, v1alpha1.UpgradeSucceeded, "", false},
		"after it was rolled back": {func(v *view) { v.deployment.record = *recordIn(v1alpha1.UpgradeRolledBack) }, v1alpha1.UpgradeRolledBack, "", false},
		"after it failed":          {func(v *view) { v.deployment.record = *recordIn(v1alpha1.UpgradeFailed) }, v1alpha1.UpgradeFailed, "", false},
		"rolled back, no request": {func(v *view) {
			v.deployment.record, v.request = *recordIn(v1alpha1.UpgradeRolledBack), engine.Upgrade{}
		}, v1alpha1.UpgradeRolledBack, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t, oldImage, nil)
			if c.change != nil {
				c.change(&v)
			}
			got := v.decide()
			if got.state.Phase != c.phase || !strings.Contains(got.state.Message, c.message) || (got.write != nil) != c.writes || got.image != "" || got.job {
				t.Errorf("%+v, writes %+v", got, got.write)
			}
			if v.request.ID != "" && got.state.ID != v.request.ID {
				t.Errorf("reports ID %q", got.state.ID)
			}
		})
	}
}

// The policy gets the image that would run, and an unknown order of versions counts as older.
func TestDecide_AsksPolicyAboutTheImage(t *testing.T) {
	for _, c := range []struct {
		request engine.Upgrade
		running string
		want    policy.Upgrade
		to      string
	}{
		{engine.Upgrade{Version: "v0.3.0"}, "v0.2.0", policy.Upgrade{Repository: repo, Version: "v0.3.0"}, newImage},
		{engine.Upgrade{Version: "v0.3.0", Digest: digest}, "v0.2.0", policy.Upgrade{Repository: repo, Version: "v0.3.0", Digest: digest}, newImage + "@" + digest},
		{engine.Upgrade{Version: "v0.3.0", Repository: "other/agent"}, "v0.2.0", policy.Upgrade{Repository: "other/agent", Version: "v0.3.0"}, "other/agent:v0.3.0"},
		{engine.Upgrade{Version: "v0.1.9"}, "v0.2.0", policy.Upgrade{Repository: repo, Version: "v0.1.9", Older: true}, repo + ":v0.1.9"},
		{engine.Upgrade{Version: "v0.3.0-rc.1"}, "v0.3.0", policy.Upgrade{Repository: repo, Version: "v0.3.0-rc.1", Older: true}, repo + ":v0.3.0-rc.1"},
		{engine.Upgrade{Version: "latest"}, "v0.2.0", policy.Upgrade{Repository: repo, Version: "latest", Older: true}, repo + ":latest"},
		{engine.Upgrade{Version: "v0.3.0"}, "dev", policy.Upgrade{Repository: repo, Version: "v0.3.0", Older: true}, newImage},
	} {
		v := viewOf(t, oldImage, nil)
		c.request.ID, c.request.TimeoutMillis = "1", 60_000
		v.request, v.version = c.request, c.running
		var asked policy.Upgrade
		v.allowed = func(u policy.Upgrade) error { asked = u; return nil }
		got := v.decide()
		if asked != c.want {
			t.Errorf("%+v: the policy was asked about %+v", c.request, asked)
		}
		if got.write == nil || got.write.To != c.to || got.write.From != oldImage {
			t.Errorf("%+v: %+v", c.request, got.write)
		}
	}
}

func TestDecide_InProgress(t *testing.T) {
	for name, c := range map[string]struct {
		record string // phase
		image  string
		change func(*view)
		phase  string
		image2 string // that is set
		job    bool
		writes bool
	}{
		"the Job is created first":             {v1alpha1.UpgradePreparing, oldImage, nil, v1alpha1.UpgradePreparing, "", true, false},
		"the Job does not start":               {v1alpha1.UpgradePreparing, oldImage, func(v *view) { v.now = start.Add(jobStart + 1) }, v1alpha1.UpgradeFailed, "", false, true},
		"the Job runs":                         {phaseJobRunning, oldImage, nil, v1alpha1.UpgradeUpgrading, newImage, false, true},
		"the Job runs, not in sync":            {phaseJobRunning, oldImage, func(v *view) { v.inSync = false }, v1alpha1.UpgradePreparing, "", false, false},
		"the Job runs, not in sync for long":   {phaseJobRunning, oldImage, func(v *view) { v.inSync, v.now = false, start.Add(jobStart+1) }, v1alpha1.UpgradeFailed, "", false, true},
		"the policy has changed":               {phaseJobRunning, oldImage, func(v *view) { v.allowed = func(policy.Upgrade) error { return errors.New("no") } }, v1alpha1.UpgradeFailed, "", false, true},
		"the Deployment got a manager":         {phaseJobRunning, oldImage, func(v *view) { v.deployment.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"} }, v1alpha1.UpgradeFailed, "", false, true},
		"another process prepared":             {v1alpha1.UpgradePreparing, oldImage, func(v *view) { v.process = 2 }, v1alpha1.UpgradeFailed, "", false, true},
		"another process, the Job runs":        {phaseJobRunning, oldImage, func(v *view) { v.process = 2 }, v1alpha1.UpgradeFailed, "", false, true},
		"a user changed the image":             {phaseJobRunning, "mine:1", nil, v1alpha1.UpgradeFailed, "", false, true},
		"the old process waits":                {v1alpha1.UpgradeUpgrading, newImage, nil, v1alpha1.UpgradeUpgrading, "", false, false},
		"the old process of the new version":   {v1alpha1.UpgradeUpgrading, newImage, func(v *view) { v.version = "v0.3.0" }, v1alpha1.UpgradeUpgrading, "", false, false},
		"a new process of the old version":     {v1alpha1.UpgradeUpgrading, newImage, func(v *view) { v.process = 2 }, v1alpha1.UpgradeUpgrading, "", false, false},
		"the new agent is not in sync":         {v1alpha1.UpgradeUpgrading, newImage, func(v *view) { v.process, v.version, v.inSync = 2, "0.3.0", false }, v1alpha1.UpgradeUpgrading, "", false, false},
		"the new agent is in sync":             {v1alpha1.UpgradeUpgrading, newImage, func(v *view) { v.process, v.version = 2, "0.3.0" }, v1alpha1.UpgradeSucceeded, "", false, true},
		"the new agent has no request":         {v1alpha1.UpgradeUpgrading, newImage, func(v *view) { v.process, v.version, v.request = 2, "v0.3.0", engine.Upgrade{} }, v1alpha1.UpgradeSucceeded, "", false, true},
		"the new agent has another request":    {v1alpha1.UpgradeUpgrading, newImage, func(v *view) { v.process, v.version, v.request.ID, v.inSync = 2, "v0.3.0", "2", false }, v1alpha1.UpgradeUpgrading, "", false, false},
		"a user changed the image to another":  {v1alpha1.UpgradeUpgrading, "mine:1", func(v *view) { v.process = 2 }, v1alpha1.UpgradeFailed, "", false, true},
		"a user restored the image themselves": {v1alpha1.UpgradeUpgrading, oldImage, func(v *view) { v.process = 2 }, v1alpha1.UpgradeFailed, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t, c.image, recordIn(c.record))
			if c.change != nil {
				c.change(&v)
			}
			got := v.decide()
			if got.state.ID != "1" || got.state.Phase != c.phase || got.image != c.image2 || got.job != c.job || (got.write != nil) != c.writes {
				t.Errorf("%+v, writes %+v", got, got.write)
			}
			if got.write != nil && (got.write.Phase != c.phase || got.write.From != oldImage || got.write.To != newImage) {
				t.Errorf("writes %+v", got.write)
			}
			if c.phase == v1alpha1.UpgradeUpgrading && got.write != nil && !got.write.Started.Time.Equal(v.now) {
				t.Error("the timeout does not begin with the change")
			}
			if c.phase != v1alpha1.UpgradeFailed && c.phase != v1alpha1.UpgradeSucceeded && !got.again {
				t.Error("it is not looked at again")
			}
		})
	}
}

func TestRestore_Decides(t *testing.T) {
	for name, c := range map[string]struct {
		id     string
		record string
		image  string
		now    time.Duration // since the start
		phase  string        // written
		set    string        // image
		done   bool
	}{
		"proves that it runs":                 {"1", v1alpha1.UpgradePreparing, oldImage, 0, phaseJobRunning, "", false},
		"waits for the change":                {"1", phaseJobRunning, oldImage, time.Minute, "", "", false},
		"the agent does not change the image": {"1", phaseJobRunning, oldImage, 2*jobStart + 1, v1alpha1.UpgradeFailed, "", false},
		"waits for the new agent":             {"1", v1alpha1.UpgradeUpgrading, newImage, 5*time.Minute - 1, "", "", false},
		"restores":                            {"1", v1alpha1.UpgradeUpgrading, newImage, 5 * time.Minute, v1alpha1.UpgradeRolledBack, oldImage, false},
		"a user changed the image":            {"1", v1alpha1.UpgradeUpgrading, "mine:1", time.Hour, v1alpha1.UpgradeFailed, "", false},
		"never after success":                 {"1", v1alpha1.UpgradeSucceeded, newImage, time.Hour, "", "", true},
		"never twice":                         {"1", v1alpha1.UpgradeRolledBack, newImage, time.Hour, "", "", true},
		"never after a failure":               {"1", v1alpha1.UpgradeFailed, newImage, time.Hour, "", "", true},
		"never for another upgrade":           {"2", v1alpha1.UpgradeUpgrading, newImage, time.Hour, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			write, set, done := restore(deploymentOf(t, c.image, recordIn(c.record), ""), c.id, start, start.Add(c.now))
			phase := ""
			if write != nil {
				phase = write.Phase
			}
			if phase != c.phase || set != c.set || done != c.done {
				t.Errorf("writes %q, sets %q, done %v", phase, set, done)
			}
		})
	}
}

// The Job may run on a node with another clock, and may have been restarted.
func TestRestore_DeadlineWithAnotherClock(t *testing.T) {
	r := recordIn(v1alpha1.UpgradeUpgrading)
	for seen, want := range map[time.Duration]time.Duration{-time.Hour: -time.Hour + 5*time.Minute, 0: 5 * time.Minute, time.Minute: 5 * time.Minute} {
		if got := r.deadline(start.Add(seen)); !got.Equal(start.Add(want)) {
			t.Errorf("first seen after %v: restores after %v, want %v", seen, got.Sub(start), want)
		}
	}
}

func TestManagedBy_OtherToolsAreLeftAlone(t *testing.T) {
	for metadata, want := range map[string]string{
		``: "",
		`,"labels":{"app.kubernetes.io/name":"argocd-agent-agent","app.kubernetes.io/part-of":"argocd-agent"}`:                                 "",
		`,"labels":{"app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/instance":"hub"}`:                                                 "Helm manages it: run helm upgrade with the new image.tag or image.digest for release hub",
		`,"annotations":{"meta.helm.sh/release-name":"agent"}`:                                                                                 "for release agent",
		`,"annotations":{"argocd.argoproj.io/tracking-id":"agents:apps/Deployment:argocd/x"},"labels":{"app.kubernetes.io/managed-by":"Helm"}`: "Argo CD Application agents manages it",
		`,"labels":{"argocd.argoproj.io/instance":"agents"}`:                                                                                   "Argo CD Application agents manages it",
		`,"labels":{"app.kubernetes.io/instance":"agents"}`:                                                                                    "Argo CD Application agents may manage it",
		`,"labels":{"kustomize.toolkit.fluxcd.io/name":"infra"}`:                                                                               "Flux Kustomization infra",
		`,"labels":{"helm.toolkit.fluxcd.io/name":"agent","app.kubernetes.io/managed-by":"Helm"}`:                                              "Flux HelmRelease agent",
		`,"ownerReferences":[{"kind":"ArgoCD","name":"main"}]`:                                                                                 "ArgoCD main manages it",
		`,"labels":{"olm.owner":"x"}`:                                                                                                          "Operator Lifecycle Manager",
		`,"labels":{"app.kubernetes.io/managed-by":"pulumi"}`:                                                                                  "pulumi manages it",
	} {
		got := deploymentOf(t, oldImage, nil, metadata).managedBy()
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q", metadata, got)
		}
	}
}

func TestParseImage_KeepsTheReference(t *testing.T) {
	for text, want := range map[string]image{
		"agent":                                {repository: "agent"},
		"agent:v1":                             {repository: "agent", tag: "v1"},
		repo:                                   {repository: repo},
		oldImage:                               {repository: repo, tag: "v0.2.0"},
		repo + "@" + digest:                    {repository: repo, digest: digest},
		"a.example.com/b/c:v1@" + digest:       {repository: "a.example.com/b/c", tag: "v1", digest: digest},
		"registry.example.com:5000/b/c:latest": {repository: "registry.example.com:5000/b/c", tag: "latest"},
	} {
		if got := parseImage(text); got != want || got.String() != text {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// The Job has the old image, only its own ServiceAccount, and none of the labels that Services select.
func TestJob_RunsTheOldImage(t *testing.T) {
	d := deploymentOf(t, oldImage, recordIn(v1alpha1.UpgradePreparing), "")
	ref, made := d.job()
	body, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	var job batchv1.Job
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		t.Fatalf("not a Job: %v\n%s", err, body)
	}
	pod := job.Spec.Template.Spec
	one := pod.Containers[0]
	if one.Image != oldImage || strings.Join(one.Args, " ") != "restore-image --namespace argocd --deployment argocd-agent-agent --id 1" {
		t.Errorf("%+v", one)
	}
	if pod.ServiceAccountName != "argocd-agent-agent-restore" || len(pod.Volumes) > 0 || len(one.EnvFrom)+len(one.Env) > 0 || pod.ImagePullSecrets[0].Name != "pull" ||
		pod.RestartPolicy != "OnFailure" || *pod.EnableServiceLinks || !*pod.SecurityContext.RunAsNonRoot || !*one.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("%+v", pod)
	}
	if job.Spec.Template.Labels["app.kubernetes.io/name"] == d.Name {
		t.Error("Services of the agent select the pod of the Job")
	}
	if again, _ := d.job(); again != ref {
		t.Error("one upgrade has two Jobs")
	}
	d.record.ID = "2"
	if other, _ := d.job(); other == ref || ref.Namespace != "argocd" {
		t.Errorf("%+v and %+v", ref, other)
	}
}

func TestRecord_SurvivesTheAnnotation(t *testing.T) {
	r := recordIn(v1alpha1.UpgradeUpgrading)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(string(text))
	d := deploymentOf(t, newImage, nil, fmt.Sprintf(`,"annotations":{%q:%s}`, annotation, quoted))
	if !d.record.Started.Time.Equal(r.Started.Time) || d.record.Timeout != r.Timeout || d.record.To != r.To || d.record.Process != 1 {
		t.Errorf("%+v", d.record)
	}
}
