package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent/argocd-agent/internal/existing"
)

// existingDeployment returns a Deployment of the existing argocd-agent, and its ConfigMap. It has every setting and the
// values of cmd/argocd-agent/testdata/existing-names.txt.
func existingDeployment(t *testing.T, role string) (*appsv1.Deployment, map[string]string) {
	t.Helper()
	table, err := os.ReadFile("../../cmd/argocd-agent/testdata/existing-names.txt")
	if err != nil {
		t.Fatal(err)
	}
	container := corev1.Container{Name: "argocd-agent-" + role, Image: "registry/argocd-agent:v0.9.0", Args: []string{role}}
	data := map[string]string{}
	for line := range strings.Lines(string(table)) {
		words := append(strings.Fields(line), "")
		if words[0] != role || words[2] == "-" || words[1] == "redis-password" {
			continue
		}
		key := role + "." + words[1]
		data[key] = words[3]
		container.Env = append(container.Env, corev1.EnvVar{Name: words[2], ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: paramsConfigMap}, Key: key}}})
	}
	container.Env = append(container.Env, secretVariable("argocd-redis", "auth"), corev1.EnvVar{Name: "HTTPS_PROXY", Value: "proxy:3128"})
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-" + role, Namespace: "argocd", UID: types.UID(role), ResourceVersion: "1"}}
	d.Spec.Template.Labels = map[string]string{nameLabel: d.Name, partOfLabel: ourPartOf, componentLabel: role}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: d.Spec.Template.Labels}
	d.Spec.Replicas = new(int32)
	*d.Spec.Replicas, d.Status.ReadyReplicas = 2, 2
	for _, volume := range []string{"jwt", "redis-tls"} {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/app/config/" + volume})
		d.Spec.Template.Spec.Volumes = append(d.Spec.Template.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: volume}}})
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{container}
	return d, data
}

func secretVariable(secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: "REDIS_PASSWORD", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}}
}

func convertTest(t *testing.T, role string, change func(d *appsv1.Deployment, data map[string]string), overrides map[string]string) (*converted, map[string]planItem) {
	t.Helper()
	d, data := existingDeployment(t, role)
	if change != nil {
		change(d, data)
	}
	result, err := convert(role, d, overrides, func(name string) (map[string]string, error) {
		if name != paramsConfigMap {
			t.Errorf("ConfigMap %s is read", name)
		}
		return data, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	items := map[string]planItem{}
	for _, item := range result.items {
		items[item.Object] = item
	}
	return result, items
}

// The ConfigMaps of existing installations need no decision, and every setting has a row.
func TestImport_ConvertsDefaultSettings(t *testing.T) {
	for role, want := range map[string]map[string]string{
		rolePrincipal: {"ARGOCD_PRINCIPAL_LISTEN_PORT": "8443", "ARGOCD_PRINCIPAL_HEALTHZ_PORT": "8003", "ARGOCD_PRINCIPAL_TLS_CA_SECRET_NAME": "argocd-agent-ca",
			"ARGOCD_PRINCIPAL_AUTH": commonNameMethod, "ARGOCD_PRINCIPAL_KEEPALIVE_MIN_INTERVAL": "0", "HTTPS_PROXY": "proxy:3128"},
		roleAgent: {"ARGOCD_AGENT_MODE": "autonomous", "ARGOCD_AGENT_CREDS": "mtls:", "ARGOCD_AGENT_HEALTHZ_PORT": "8002", "ARGOCD_AGENT_REMOTE_PORT": "443",
			"ARGOCD_AGENT_ROOT_CA_SECRET_NAME": "argocd-agent-ca"},
	} {
		result, items := convertTest(t, role, nil, nil)
		for variable, value := range want {
			if result.values[variable] != value {
				t.Errorf("%s: %s is %q, want %q", role, variable, result.values[variable], value)
			}
		}
		if found := blocking(result.items, false); len(found) > 0 {
			t.Errorf("%s: %v", role, found)
		}
		_, data := existingDeployment(t, role)
		for key, value := range data {
			if item := items[key]; (value != "") != (item.Action != "") || strings.Contains(item.Detail, "unknown") {
				t.Errorf("%s: %s=%q has row %v", role, key, value, item)
			}
		}
		for variable := range result.values {
			for _, one := range existing.Ignored[prefixOf(role)] {
				if variable == one.Variable {
					t.Errorf("%s: %s has no meaning and is set", role, variable)
				}
			}
		}
		if len(result.pod.Env) != 0 || len(result.pod.Volumes) != 0 {
			t.Errorf("%s: variables %v, volumes %v", role, result.pod.Env, result.pod.Volumes)
		}
	}
}

func TestImport_ConvertsSpecialSettings(t *testing.T) {
	set := func(key, value string) func(*appsv1.Deployment, map[string]string) {
		return func(_ *appsv1.Deployment, data map[string]string) { data[key] = value }
	}
	for _, tc := range []struct {
		name      string
		change    func(*appsv1.Deployment, map[string]string)
		overrides map[string]string
		object    string
		want      planItem // Detail is a part
	}{
		{"an expression that is not anchored", set("principal.auth", "mtls:OU=x,CN=(.*)"), nil, "principal.auth", planItem{Action: actDecide, Detail: "--set ARGOCD_PRINCIPAL_AUTH=VALUE"}},
		{"the decision of a user", set("principal.auth", "mtls:OU=x,CN=(.*)"), map[string]string{"ARGOCD_PRINCIPAL_AUTH": "mtls:^CN=(.*)$"}, "ARGOCD_PRINCIPAL_AUTH",
			planItem{Action: actConvert, Detail: `"mtls:^CN=(.*)$"`}},
		{"passwords", set("principal.auth", "userpass:/app/config/userpass/passwd"), nil, "principal.auth", planItem{Action: actConvert, Detail: commonNameMethod}},
		{"a second hub", set("principal.ha-enabled", "true"), nil, "principal.ha-enabled", planItem{Action: actDecide, Detail: "--set ARGOCD_PRINCIPAL_HA_ENABLED=VALUE"}},
		{"an old version of TLS", set("principal.tls-min-version", "tls1.1"), nil, "principal.tls-min-version", planItem{Action: actDecide, Detail: "tls1.2"}},
		{"a password from another Secret", func(d *appsv1.Deployment, _ map[string]string) {
			env := d.Spec.Template.Spec.Containers[0].Env
			env[len(env)-2] = secretVariable("redis-initial-password", "admin.password")
		}, nil, "REDIS_PASSWORD", planItem{Action: actKeep, Detail: "Deployment"}},
		{"a volume with a file that is used", set("principal.redis-tls-enabled", "true"), nil, "volume redis-tls", planItem{Action: actKeep, Detail: "/app/config/redis-tls"}},
		{"a flag with another name", func(d *appsv1.Deployment, _ map[string]string) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"principal", "--redis-tls-enabled", "--redis-ca-path=/app/config/redis-tls/other.crt"}
		}, nil, "--redis-ca-path", planItem{Action: actConvert, Detail: "ARGOCD_PRINCIPAL_REDIS_TLS_CA_PATH=/app/config/redis-tls/other.crt"}},
		{"a password in the manifest", func(d *appsv1.Deployment, _ map[string]string) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"principal", "--redis-password=secret"}
		}, nil, "--redis-password", planItem{Action: actKeep, Detail: "in the Deployment"}},
		{"a setting that no program knows", func(d *appsv1.Deployment, _ map[string]string) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"principal", "--no-such-flag"}
		}, nil, "--no-such-flag", planItem{Action: actIgnore, Detail: "unknown"}},
	} {
		result, items := convertTest(t, rolePrincipal, tc.change, tc.overrides)
		if got := items[tc.object]; got.Action != tc.want.Action || !strings.Contains(got.Detail, tc.want.Detail) {
			t.Errorf("%s: %v", tc.name, got)
		}
		if blocked := len(blocking(result.items, false)) > 0; blocked != (tc.want.Action == actDecide) {
			t.Errorf("%s: blocked %v", tc.name, blocked)
		}
		if text := fmt.Sprint(result.items, result.values); strings.Contains(text, "secret ") || strings.Contains(text, "=secret") {
			t.Errorf("%s: the password is shown: %s", tc.name, text)
		}
		if tc.object == "REDIS_PASSWORD" || tc.object == "--redis-password" {
			if value, ok := result.values["ARGOCD_PRINCIPAL_REDIS_CREDS_DIR_PATH"]; !ok || value != "" || len(result.pod.Env) == 0 {
				t.Errorf("%s: variables %v, settings %v", tc.name, result.pod.Env, result.values)
			}
		}
	}
}

// importedSide returns a cluster with the existing principal and its pod.
func importedSide(t *testing.T, objects ...any) (*importSide, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	d, _ := existingDeployment(t, rolePrincipal)
	for _, object := range append([]any{d}, objects...) {
		var err error
		switch o := object.(type) {
		case *appsv1.Deployment:
			_, err = client.AppsV1().Deployments("argocd").Create(t.Context(), o, metav1.CreateOptions{})
		case *appsv1.StatefulSet:
			_, err = client.AppsV1().StatefulSets("argocd").Create(t.Context(), o, metav1.CreateOptions{})
		case *appsv1.ReplicaSet:
			_, err = client.AppsV1().ReplicaSets("argocd").Create(t.Context(), o, metav1.CreateOptions{})
		case *corev1.Pod:
			_, err = client.CoreV1().Pods("argocd").Create(t.Context(), o, metav1.CreateOptions{})
		case *corev1.Secret:
			_, err = client.CoreV1().Secrets("argocd").Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &importSide{cluster: &cluster{role: "hub", namespace: "argocd", kube: client}, role: rolePrincipal}
	if err := s.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, client
}

func ourDeployment(replicas int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-principal-imported", UID: "ours", ResourceVersion: "1"}}
	d.Spec.Replicas = &replicas
	d.Spec.Template.Labels = map[string]string{nameLabel: "argocd-agent-principal", partOfLabel: ourPartOf, componentLabel: "principal"}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: "argocd-agent-principal"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "principal", Args: []string{"principal"}}}
	return d
}

func actionsOf(items []planItem) string {
	var all []string
	for _, item := range items {
		all = append(all, item.Action)
	}
	return strings.Join(all, ", ")
}

func TestImport_NeverRunsBothPrograms(t *testing.T) {
	s, _ := importedSide(t, ourDeployment(1))
	if got := actionsOf(s.deploymentItems()); got != "refuse, create" {
		t.Errorf("both run: %s", got)
	}
	s, _ = importedSide(t, ourDeployment(0))
	if got := actionsOf(s.deploymentItems()); got != "stop, create" || s.hubReady() == nil {
		t.Errorf("the existing one runs: %s, %v", got, s.hubReady())
	}
	*s.old.Spec.Replicas = 0
	if got := actionsOf(s.deploymentItems()); got != "risk, create" {
		t.Errorf("a user stopped it: %s", got)
	}
	s.old.Annotations = map[string]string{replicasAnnotation: "2"}
	if got := actionsOf(s.deploymentItems()); got != "stop, create" {
		t.Errorf("an import stopped it: %s", got)
	}
	s.old.Spec.Template.Spec.Containers[0].Image = "registry/argocd-agent:latest"
	s.old.OwnerReferences = []metav1.OwnerReference{{Kind: "ArgoCD", Name: "main", Controller: new(bool)}}
	*s.old.OwnerReferences[0].Controller = true
	if got := actionsOf(s.deploymentItems()); got != "stop, warn, refuse, create" {
		t.Errorf("an operator controls it: %s", got)
	}
	s.old.OwnerReferences, s.ours.Name = nil, "argocd-agent-other"
	if got := actionsOf(s.deploymentItems()); got != "stop, warn, refuse, create" {
		t.Errorf("ours was installed otherwise: %s", got)
	}
}

// A terminating pod of the existing program is not gone. Pods of ours with the same labels do not count.
func TestImport_WaitsUntilPodsAreGone(t *testing.T) {
	owned := func(owner metav1.Object, kind, name string) metav1.ObjectMeta {
		yes := true
		return metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{nameLabel: "argocd-agent-principal", partOfLabel: ourPartOf, componentLabel: "principal"},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}}
	}
	old, _ := existingDeployment(t, rolePrincipal)
	ours := ourDeployment(1)
	oldSet := &appsv1.ReplicaSet{ObjectMeta: owned(old, "Deployment", "old-set")}
	ourSet := &appsv1.ReplicaSet{ObjectMeta: owned(ours, "Deployment", "our-set")}
	pod := &corev1.Pod{ObjectMeta: owned(oldSet, "ReplicaSet", "old-pod")}
	s, client := importedSide(t, ours, oldSet, ourSet, pod, &corev1.Pod{ObjectMeta: owned(ourSet, "ReplicaSet", "our-pod")})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.stop(ctx, s.old, time.Millisecond, "2"); err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("the pod is there: %v", err)
	}
	got, err := client.AppsV1().Deployments("argocd").Get(ctx, old.Name, metav1.GetOptions{})
	if err != nil || replicas(got) != 0 || got.Annotations[replicasAnnotation] != "2" {
		t.Errorf("%v, %d replicas, annotations %v", err, replicas(got), got.Annotations)
	}
	if err := client.CoreV1().Pods("argocd").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.find(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(ctx, s.old, time.Minute, "0"); err != nil { // the command is repeated
		t.Error(err)
	}
	if got, _ := client.AppsV1().Deployments("argocd").Get(ctx, old.Name, metav1.GetOptions{}); got.Annotations[replicasAnnotation] != "2" {
		t.Errorf("the record was replaced: %v", got.Annotations)
	}
	*got.Spec.Replicas = 1
	if _, err := client.AppsV1().Deployments("argocd").Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(ctx, s.old, time.Minute, "0"); err == nil || !strings.Contains(err.Error(), "another program scaled") {
		t.Errorf("it was scaled: %v", err)
	}
}

// principalWrites changes the cluster Secret of agent w1 as our principal does.
func principalWrites(t *testing.T, client *fake.Clientset, server string) *corev1.Secret {
	t.Helper()
	applied := corev1apply.Secret("cluster-w1", "argocd").WithData(map[string][]byte{"server": []byte(server)})
	changed, err := client.CoreV1().Secrets("argocd").Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: principalManager, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// A revert does not undo what users have changed since the import, unless they accept it.
func TestImport_RevertKeepsEditsOfClusterSecrets(t *testing.T) {
	for name, edit := range map[string]func(data map[string][]byte){
		"server":   func(data map[string][]byte) { data["server"] = []byte("https://user?agentName=w1") },
		"shard":    func(data map[string][]byte) { data["shard"] = []byte("3") },
		"project":  func(data map[string][]byte) { data["project"] = []byte("other") },
		"clusters": func(data map[string][]byte) { delete(data, "clusters") },
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cluster-w1", Namespace: "argocd", UID: "secret", Labels: map[string]string{agentNameLabel: "w1", "argocd.argoproj.io/secret-type": "cluster"}},
			Data: map[string][]byte{"server": []byte("https://old?agentName=w1"), "project": []byte("p"), "clusters": []byte("x")}}
		s, client := importedSide(t, ourDeployment(1), secret)
		ctx := t.Context()
		if err := s.backUp(ctx, secret); err != nil {
			t.Fatal(err)
		}
		if err := s.stop(ctx, s.old, time.Minute, "2"); err != nil {
			t.Fatal(err)
		}
		changed := principalWrites(t, client, "https://new?agentName=w1")
		edit(changed.Data)
		edited, err := client.CoreV1().Secrets("argocd").Update(ctx, changed, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.find(ctx); err != nil {
			t.Fatal(err)
		}
		err = s.revert(ctx, &importOptions{timeout: time.Minute}, t.Logf)
		if err == nil || !strings.Contains(err.Error(), "cluster-w1 ("+name+")") || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.find(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := client.CoreV1().Secrets("argocd").Get(ctx, "cluster-w1", metav1.GetOptions{})
		if err != nil || replicas(s.ours) != 1 || replicas(s.old) != 0 || !maps.EqualFunc(got.Data, edited.Data, bytes.Equal) {
			t.Errorf("%s: something was changed: %v, data %q", name, err, got.Data)
		}
		if err := s.revert(ctx, &importOptions{timeout: time.Minute, acceptRisks: true}, t.Logf); err != nil {
			t.Error(err)
		}
		if got, err = client.CoreV1().Secrets("argocd").Get(ctx, "cluster-w1", metav1.GetOptions{}); err != nil || !maps.EqualFunc(got.Data, secret.Data, bytes.Equal) {
			t.Errorf("%s: %v, data %q", name, err, got.Data)
		}
	}
}

// The certificate of an agent is checked as the new principal does it.
func TestImport_CertificateNamesTheAgent(t *testing.T) {
	certificate := func(cn, uri string) []byte {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: cn}}
		if uri != "" {
			parsed, err := url.Parse(uri)
			if err != nil {
				t.Fatal(err)
			}
			template.URIs = []*url.URL{parsed}
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	const spiffe = `mtls:uri:^spiffe://example\.org/agent/([^/]+)$`
	for _, tc := range []struct{ method, cn, uri, want string }{
		{commonNameMethod, "w1", "", ""},
		{commonNameMethod, "w1", "spiffe://example.org/agent/w2", ""},
		{commonNameMethod, "w2", "", actRefuse},
		{commonNameMethod, "w2", "spiffe://example.org/agent/w1", actRefuse},
		{spiffe, "any", "spiffe://example.org/agent/w1", ""},
		{spiffe, "w1", "spiffe://example.org/agent/w2", actRefuse},
		{spiffe, "w1", "", actRefuse},
		{"header:x-agent:^([a-z0-9-]+)$", "w2", "", ""},
		{"", "w1", "", ""},
		{"", "w2", "", actRefuse},
		{"", "w2", "spiffe://example.org/agent/w1", actWarn},
	} {
		s := &importSide{agent: "w1", converted: &converted{}}
		if tc.method != "" {
			ours := ourDeployment(1)
			ours.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "params"}}}}
			hub, client := importedSide(t, ours)
			if _, err := client.CoreV1().ConfigMaps("argocd").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "params"}, Data: map[string]string{"ARGOCD_PRINCIPAL_AUTH": tc.method}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var err error
			if s.auth, err = hub.authMethod(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.checkCertificate("tls", certificate(tc.cn, tc.uri))
		got := ""
		if len(s.items) > 0 {
			got = s.items[0].Action
		}
		if got != tc.want {
			t.Errorf("%+v: %q", tc, s.items)
		}
	}
}

// Copies of cluster Secrets go, also if the Secret was deleted after the import. Other Secrets stay.
func TestImport_LeftoversIncludeAllCopies(t *testing.T) {
	ours := ourDeployment(1)
	s, client := importedSide(t, ours, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine-before-import"}})
	for _, name := range []string{"cluster-w1", "cluster-deleted"} {
		if err := s.backUp(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.CoreV1().Secrets("argocd").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		objects = append(objects, &list.Items[i])
	}
	s.dynamic = dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...)
	if s.converted == nil {
		s.converted = &converted{}
	}
	found, err := s.leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range found {
		if one.kind == "Secret" {
			names = append(names, one.name)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"cluster-deleted-before-import", "cluster-w1-before-import"}) {
		t.Errorf("%q", names)
	}
}

func TestImport_RevertRestoresReplicasAndSecrets(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cluster-w1", UID: "secret", Labels: map[string]string{agentNameLabel: "w1", "argocd.argoproj.io/secret-type": "cluster"}},
		Data: map[string][]byte{"server": []byte("https://old?agentName=w1")}}
	s, client := importedSide(t, ourDeployment(1), secret)
	ctx := t.Context()
	if err := s.backUp(ctx, secret); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(ctx, s.old, time.Minute, "2"); err != nil {
		t.Fatal(err)
	}
	changed := principalWrites(t, client, "https://new?agentName=w1")
	changed.Labels["env"] = "prod"
	changed, err := client.CoreV1().Secrets("argocd").Update(ctx, changed, metav1.UpdateOptions{FieldManager: "kubectl"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.backUp(ctx, changed); err != nil { // an import that is repeated does not replace the copy
		t.Fatal(err)
	}
	for range 2 { // a revert can be repeated
		if err := s.find(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.revert(ctx, &importOptions{timeout: time.Minute}, t.Logf); err != nil {
			t.Fatal(err)
		}
		if err := s.find(ctx); err != nil {
			t.Fatal(err)
		}
		if _, recorded := s.old.Annotations[replicasAnnotation]; replicas(s.old) != 2 || replicas(s.ours) != 0 || recorded {
			t.Errorf("%d replicas, %d of ours, annotations %v", replicas(s.old), replicas(s.ours), s.old.Annotations)
		}
		got, err := client.CoreV1().Secrets("argocd").Get(ctx, "cluster-w1", metav1.GetOptions{})
		if err != nil || string(got.Data["server"]) != "https://old?agentName=w1" || got.Labels["env"] != "prod" {
			t.Errorf("%v: %s, labels %v", err, got.Data["server"], got.Labels)
		}
	}
	// A Secret with the same name that is another object is not restored.
	if err := client.CoreV1().Secrets("argocd").Delete(ctx, "cluster-w1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other := changed.DeepCopy()
	other.UID, other.ResourceVersion = "other", ""
	if _, err := client.CoreV1().Secrets("argocd").Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if restored, err := s.restoreSecrets(ctx, true); err != nil || restored != 0 {
		t.Errorf("%d restored, %v", restored, err)
	}
}

// A status from before the new agent was started does not count as the new agent.
func TestImport_WaitsUntilAgentIsDisconnected(t *testing.T) {
	agent := &unstructured.Unstructured{Object: map[string]any{"apiVersion": agentResource.GroupVersion().String(), "kind": "Agent",
		"metadata": map[string]any{"name": "w1", "namespace": "argocd"}, "status": map[string]any{"connected": true}}}
	s, _ := importedSide(t)
	s.dynamic = dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), agent)
	if err := s.disconnected(t.Context(), "w1", time.Millisecond); err == nil || !strings.Contains(err.Error(), "another cluster uses its certificate") {
		t.Errorf("it is connected: %v", err)
	}
	agent.Object["status"] = map[string]any{"connected": false}
	if _, err := s.dynamic.Resource(agentResource).Namespace("argocd").Update(t.Context(), agent, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.disconnected(t.Context(), "w1", time.Minute); err != nil {
		t.Error(err)
	}
}

// The principal writes the status of an Agent at any time.
func TestImport_SetsModeDespiteConflicts(t *testing.T) {
	agent := &unstructured.Unstructured{Object: map[string]any{"apiVersion": agentResource.GroupVersion().String(), "kind": "Agent",
		"metadata": map[string]any{"name": "w1", "namespace": "argocd"}}}
	s, _ := importedSide(t)
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), agent)
	conflicts := 2
	client.PrependReactor("patch", "agents", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(agentResource.GroupResource(), "w1", errors.New("modified"))
	})
	s.dynamic = client
	if _, err := s.setMode(t.Context(), "w1", "managed"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.setMode(t.Context(), "w1", "autonomous"); err == nil || !strings.Contains(err.Error(), "has mode managed on the hub") {
		t.Errorf("another mode: %v", err)
	}
}

// A missing permission is reported at once, with the reason.
func TestImport_ReportsWhyAnAgentIsNotCreated(t *testing.T) {
	s, _ := importedSide(t)
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("create", "agents", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(agentResource.GroupResource(), "w1", errors.New("not permitted"))
	})
	s.dynamic = client
	if _, err := s.ensureAgent(t.Context(), "w1"); err == nil || !strings.Contains(err.Error(), "not permitted") || !strings.Contains(err.Error(), "request this permission") {
		t.Error(err)
	}
}

// Only bindings that bind nothing else are deleted with a ServiceAccount.
func TestImport_LeftoversHaveOnlyOwnRoles(t *testing.T) {
	s, client := importedSide(t)
	ctx := t.Context()
	own := rbacv1.Subject{Kind: "ServiceAccount", Name: "old", Namespace: "argocd"}
	role := func(kind string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: kind, Name: "old"} }
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Subjects: []rbacv1.Subject{own}, RoleRef: role("Role")}
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Subjects: []rbacv1.Subject{own}, RoleRef: role("ClusterRole")}
	if _, err := client.RbacV1().RoleBindings("argocd").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, everywhere, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kinds := func() (all []string) {
		found, err := s.rights(ctx, "old")
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found {
			all = append(all, one.kind)
		}
		return all
	}
	if got := strings.Join(kinds(), ", "); got != "RoleBinding, Role, ClusterRoleBinding, ClusterRole" {
		t.Error(got)
	}
	everywhere.Subjects = append(everywhere.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: "old", Namespace: "other"})
	if _, err := client.RbacV1().ClusterRoleBindings().Update(ctx, everywhere, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding.RoleRef.Kind = "ClusterRole"
	if _, err := client.RbacV1().RoleBindings("argocd").Update(ctx, binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := kinds(); len(got) > 0 {
		t.Errorf("roles of others: %v", got)
	}
}

// An object that another program of the namespace uses is not deleted, whatever kind of program that is.
func TestImport_LeftoversOfOtherProgramsStay(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	params := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-params", Namespace: "argocd"}}
	jwt := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: jwtSecret, Namespace: "argocd"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-principal", Namespace: "argocd"}}
	fromConfigMap := corev1.EnvVar{Name: "MODE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: params.Name}, Key: "agent.mode"}}}
	template := func(pod corev1.PodSpec) corev1.PodTemplateSpec { return corev1.PodTemplateSpec{Spec: pod} }
	other := metav1.ObjectMeta{Name: "other"}
	for name, tc := range map[string]struct {
		program any
		kept    string
	}{
		"none": {nil, ""},
		"Deployment with a variable": {&appsv1.Deployment{ObjectMeta: other, Spec: appsv1.DeploymentSpec{
			Template: template(corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{fromConfigMap}}}})}}, "ConfigMap argocd-agent-params"},
		"StatefulSet with a volume": {&appsv1.StatefulSet{ObjectMeta: other, Spec: appsv1.StatefulSetSpec{
			Template: template(corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: jwtSecret}}}}})}}, "Secret argocd-agent-jwt"},
		"pod with the account": {&corev1.Pod{ObjectMeta: other, Spec: corev1.PodSpec{ServiceAccountName: account.Name}}, "ServiceAccount argocd-agent-principal"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []any{ourDeployment(1)}
			if tc.program != nil {
				objects = append(objects, tc.program)
			}
			s, _ := importedSide(t, objects...)
			s.converted, s.old.Spec.Template.Spec.ServiceAccountName = &converted{}, account.Name
			s.dynamic = dynamicfake.NewSimpleDynamicClient(scheme, params, jwt, account)
			found, err := s.leftovers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var kept, deleted []string
			for _, one := range found {
				if one.user != "" {
					kept = append(kept, one.kind+" "+one.name)
				} else {
					deleted = append(deleted, one.kind+" "+one.name)
				}
			}
			if got := strings.Join(kept, ", "); got != tc.kept {
				t.Errorf("kept: %q, want %q; deleted: %q", got, tc.kept, deleted)
			}
			if len(kept)+len(deleted) != 3 {
				t.Errorf("kept %q, deleted %q", kept, deleted)
			}
		})
	}
}

func TestImport_PlanIsJSON(t *testing.T) {
	s, _ := importedSide(t)
	s.converted, _ = convertTest(t, rolePrincipal, nil, nil)
	text, err := json.Marshal(s.planView().object)
	if err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Side     string
		Items    []planItem
		Settings map[string]string
	}
	if err := json.Unmarshal(text, &plan); err != nil || plan.Side != "principal" || len(plan.Items) < 20 || plan.Settings["ARGOCD_PRINCIPAL_LISTEN_PORT"] != "8443" {
		t.Errorf("%v: %s", err, text)
	}
}
