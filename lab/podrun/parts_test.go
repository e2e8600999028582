package podrun

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestEnv_ReferencesExpandLikeKubernetes(t *testing.T) {
	env := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	for in, want := range map[string]string{
		"":              "",
		"$(A)":          "1",
		"x$(A)y$(A)":    "x1y1",
		"$(B)":          "$(A)", // only once
		"$(EMPTY).":     ".",
		"$(UNKNOWN)":    "$(UNKNOWN)",
		"$$(A)":         "$(A)",
		"$$$(A)":        "$1",
		"$A $ $( $(A":   "$A $ $( $(A",
		"cost: 5$":      "cost: 5$",
		"$(UN$(A)":      "$(UN1",
		"$$$$":          "$$",
		"a$(A)$$(A)b$$": "a1$(A)b$",
	} {
		if got := expand(in, env); got != want {
			t.Errorf("expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRewrite_PathsAddressesAndPorts(t *testing.T) {
	r := newRewriter(
		map[string]string{"/app": "/tmp/l/app", "/app/tls": "/tmp/l/tls", "/tmp": "/tmp/l/tmp"},
		map[string]string{"redis:6379": "127.0.0.1:1", "redis.argocd.svc:6379": "127.0.0.1:2"},
		map[int32]int{8443: 18443})
	for in, want := range map[string]string{
		"/app":                    "/tmp/l/app",
		"/app/x":                  "/tmp/l/app/x",
		"/app/tls/tls.crt":        "/tmp/l/tls/tls.crt",
		"/application":            "/application",
		"/app.old":                "/app.old",
		"/opt/app":                "/opt/app",
		"https://host/app":        "https://host/app",
		"file=/app/a,/app/b:/tmp": "file=/tmp/l/app/a,/tmp/l/app/b:/tmp/l/tmp",
		"redis:6379":              "127.0.0.1:1",
		"redis://redis:6379/0":    "redis://127.0.0.1:1/0",
		"redis.argocd.svc:6379":   "127.0.0.1:2",
		"my-redis:6379":           "my-redis:6379",
		"redis:63790":             "redis:63790",
		"":                        "",
		"ü/app":                   "ü/tmp/l/app",
	} {
		if got := r.value(in); got != want {
			t.Errorf("value(%q) = %q, want %q", in, got, want)
		}
	}
	args := []string{"principal", "--listen-port=8443", "--server-port", "443", "--listen", ":8443", "--peer=hub:8443", "--count=8443", "-v", "--old=1", "--old", "2", "0.0.0.0:8443"}
	got := r.args(args, map[string]string{"old": "3", "new": "/tmp"})
	want := []string{"principal", "--listen-port=18443", "--server-port", "443", "--listen", ":18443", "--peer=hub:8443", "--count=8443", "-v", "--old=3", "0.0.0.0:18443", "--new=/tmp"}
	if !slices.Equal(got, want) {
		t.Errorf("args\n%q, want\n%q", got, want)
	}
}

func TestVolume_ChangesAtomically(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	write := func(files map[string]file) bool {
		t.Helper()
		changed, err := writeVolume(dir, files)
		must(t, err)
		return changed
	}
	first := map[string]file{"a": {"1", 0o644}, "sub/b": {"1", 0o400}}
	if !write(first) || write(first) {
		t.Error("the first write changes something, the same again does not")
	}
	data, err := os.Open(filepath.Join(dir, dataLink)) // a reader during the change
	must(t, err)
	defer data.Close()
	if !write(map[string]file{"a": {"2", 0o600}, "c": {"2", 0o644}}) {
		t.Error("the second write changes nothing")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	var all []string
	for _, name := range names {
		all = append(all, strings.Split(filepath.Base(name), "-")[0])
	}
	if want := []string{"..data", "..version", "a", "c"}; !slices.Equal(all, want) {
		t.Errorf("the directory holds %v, want %v", all, want)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(content) != "2" {
		t.Errorf("a is %q, %v", content, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "a")); err != nil || target != "..data/a" {
		t.Errorf("a is a link to %q, %v", target, err)
	}
	for _, bad := range []string{"../x", "/x", "..x"} {
		if _, err := writeVolume(dir, map[string]file{bad: {}}); err == nil {
			t.Errorf("%q was written", bad)
		}
	}
}

func TestStart_RejectsUnsupportedPod(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"init container":        func(o *Options) { o.Template.Spec.InitContainers = []corev1.Container{{Name: "i"}} },
		"name one of main":      func(o *Options) { o.Container = "absent" },
		"container port 8001":   func(o *Options) { o.Ports = nil },
		"no such volume":        func(o *Options) { o.Template.Spec.Volumes = nil },
		"is of a kind":          func(o *Options) { o.Template.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{} },
		"Secret argocd/missing": func(o *Options) { o.Template.Spec.Volumes[0].Secret.SecretName = "missing" },
		`has no key "auth"`:     func(o *Options) { o.Source.(*fake).secrets["redis"] = nil },
		"Options.Binary":        func(o *Options) { o.Binary = "/absent" },
		"give Options.Source":   func(o *Options) { o.Source = nil },
		"readiness probe: only": func(o *Options) { o.container().ReadinessProbe.HTTPGet = nil },
		"asks at port 1":        func(o *Options) { o.container().LivenessProbe.HTTPGet.Port = intstr.FromInt32(1) },
		"variable BAD: the field": func(o *Options) {
			o.container().Env = []corev1.EnvVar{{Name: "BAD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.x"}}}}
		},
	} {
		o, _ := setUp(t)
		spoil(&o)
		pod, err := Start(t.Context(), o)
		if err == nil {
			_ = pod.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := Template([]byte("kind: Deployment\nmetadata: {name: a}\nspec: {template: {}}"), "b"); err == nil || !strings.Contains(err.Error(), "Deployment a") {
		t.Errorf("an absent Deployment: %v", err)
	}
	if _, err := Template([]byte("{"), "b"); err == nil {
		t.Error("a broken manifest was read")
	}
}

func (o *Options) container() *corev1.Container { return &o.Template.Spec.Containers[0] }
